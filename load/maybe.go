package load

import (
	"encoding/json"
	"fmt"
)

// Maybe is a number that may be unknown. The zero Maybe is unknown, which is
// not the same as a known zero.
type Maybe[T int | int64 | float64] struct {
	value T
	known bool
}

// Known returns a known value.
func Known[T int | int64 | float64](v T) Maybe[T] { return Maybe[T]{value: v, known: true} }

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

// MarshalJSON encodes an unknown value as null.
func (m Maybe[T]) MarshalJSON() ([]byte, error) {
	if !m.known {
		return []byte("null"), nil
	}
	return json.Marshal(m.value)
}

// UnmarshalJSON decodes null as unknown.
func (m *Maybe[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*m = Maybe[T]{}
		return nil
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*m = Known(v)
	return nil
}
