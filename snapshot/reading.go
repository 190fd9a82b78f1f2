package snapshot

import "github.com/tinylib/msgp/msgp"

// MaxPayload is the largest payload that is decoded, in bytes. A full
// LoadSnapshot takes less than 1 KiB; the engine's own limit is 16 KiB.
const MaxPayload = 64 << 10

// Kind says which of the two messages a Reading holds.
type Kind uint8

const (
	KindUnknown Kind = iota // nothing decoded, or the last Decode failed
	KindLoadSnapshot
	KindLoadStat
)

// String returns the name of the message type, or "unknown".
func (k Kind) String() string {
	switch k {
	case KindLoadSnapshot:
		return "LoadSnapshot"
	case KindLoadStat:
		return "LoadStat"
	default:
		return "unknown"
	}
}

// Reading is one load message of either type. The one that Kind names is
// valid, the other holds whatever an earlier message left there. A Reading is
// meant to be reused; it belongs to one goroutine at a time.
type Reading struct {
	Kind     Kind
	Snapshot LoadSnapshot
	Stat     LoadStat
}

// Decode reads payload, whichever of the two messages it is: the first byte
// tells a map from an array. Every error is a *DecodeError, and leaves Kind at
// KindUnknown.
func (r *Reading) Decode(payload []byte) error {
	r.Kind = KindUnknown
	switch msgp.NextType(payload) {
	case msgp.MapType:
		if err := r.Snapshot.Decode(payload); err != nil {
			return err
		}
		r.Kind = KindLoadSnapshot
	case msgp.ArrayType:
		if err := r.Stat.Decode(payload); err != nil {
			return err
		}
		r.Kind = KindLoadStat
	case msgp.InvalidType:
		if len(payload) == 0 {
			return &DecodeError{Type: messageType, Field: "payload", Err: ErrTruncated}
		}
		fallthrough
	default:
		return &DecodeError{Type: messageType, Field: "payload", Err: ErrNotLoad}
	}
	return nil
}
