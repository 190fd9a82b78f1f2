package vllm

import "fmt"

// Maybe is a number that may be unknown. The zero Maybe is unknown, which is not
// the same as a known zero. It is read like a load.Maybe, but is a type of its
// own: a decoder does not depend on what is made of its values.
type Maybe[T int64 | float64] struct {
	value T
	known bool
}

// Known returns a known value.
func Known[T int64 | float64](v T) Maybe[T] { return Maybe[T]{value: v, known: true} }

// Get returns the value, and whether it is known.
func (m Maybe[T]) Get() (T, bool) { return m.value, m.known }

// Or returns the value, or def where it is unknown.
func (m Maybe[T]) Or(def T) T {
	if m.known {
		return m.value
	}
	return def
}

// IsKnown reports whether the value is known.
func (m Maybe[T]) IsKnown() bool { return m.known }

// String returns the value, or "unknown".
func (m Maybe[T]) String() string {
	if !m.known {
		return "unknown"
	}
	return fmt.Sprint(m.value)
}
