package vllm

// MaxPayload is the largest payload that is decoded, in bytes. A step of some
// thousand requests takes a few hundred KiB; tensors travel in frames of their
// own.
const MaxPayload = 16 << 20

// EngineDead is the only frame of the last message of an engine core that dies.
const EngineDead = "ENGINE_CORE_DEAD"

// Split returns the payload of a message, for Outputs.Decode: its first frame.
// The frames after it hold tensors. Every error is a *DecodeError around
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
