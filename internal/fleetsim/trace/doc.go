// Package trace holds requests with the times of their arrival: read from the
// published formats of public traces, or generated.
//
// A [Trace] is not changed after it was made; what scales, cuts or repeats one
// returns another. Traces that were read are bounded by MaxRequests and
// MaxTokens, and a line that is not as published is a [*ParseError]. Public
// traces are not part of this repository: the user names a file.
package trace
