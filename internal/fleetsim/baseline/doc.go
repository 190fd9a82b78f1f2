// Package baseline holds the rules that gateways in the field choose workers by,
// for comparison with those of package selector.
//
// Each rule is a selector.Policy in a file of its own, with the constants of the
// project that it is from, and named as it is there. What its model gets from
// somewhere else than this library's tables, it gets from what comes closest there;
// the comment on the rule says how it differs from its model. Where nothing is said,
// the choice among equals is random.
//
// A policy is for one gateway. Several of them remember what they have sent. With
// that they are safe for concurrent use, but a choice that is made again because
// another pick took the same worker at that moment is remembered twice.
package baseline
