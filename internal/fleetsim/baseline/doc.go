// Package baseline holds the rules that gateways in the field choose workers by,
// for comparison with the ones of package selector.
//
// Each rule is a selector.Policy in a file of its own, with the project that it is
// from and that project's constants. What a rule takes from somewhere else than
// this library's tables, it gets from what comes closest to it there; the comment on
// the rule says where it differs from its model. Among equals the choice is random
// unless the model has another rule.
//
// A policy is for one gateway. It is safe for concurrent use, as any policy is, but
// for one thing that does not occur in a simulation: a choice that is made again,
// since another pick took the same worker at that moment, counts twice in what some
// rules remember.
package baseline
