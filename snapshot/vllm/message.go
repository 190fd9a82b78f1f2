package vllm

// MaxPayload is the largest payload that is decoded, in bytes. A step of 256
// requests takes some 20 KiB; the large tensors travel in frames of their own.
const MaxPayload = 16 << 20

// MaxRequests bounds the outputs of a message, and the ids of requests that have
// ended: each takes several times as much room in an Outputs as it need take in
// a payload.
const MaxRequests = 1 << 18

// MaxEngineIndex is the largest index an engine core can have: it introduces
// itself by two bytes.
const MaxEngineIndex = 1<<16 - 1

// EngineDead is the only frame of the last message of an engine core that dies.
const EngineDead = "ENGINE_CORE_DEAD"

// Split returns the payload of a message, for Outputs.Decode: its first frame.
// Those after it hold tensors. Every error is a *DecodeError around
// ErrEngineDead, ErrFrameCount or ErrPayloadSize.
func Split(frames [][]byte) (payload []byte, err error) {
	switch {
	case len(frames) == 0:
		return nil, &DecodeError{Err: ErrFrameCount}
	case len(frames) == 1 && string(frames[0]) == EngineDead:
		return nil, &DecodeError{Err: ErrEngineDead}
	case len(frames[0]) > MaxPayload:
		return nil, &DecodeError{Err: ErrPayloadSize}
	}
	return frames[0], nil
}
