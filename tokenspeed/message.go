package tokenspeed

// EngineDead is the single frame that an engine sends when it shuts down or
// crashes, in place of a batch.
const EngineDead = "ENGINE_CORE_DEAD"

// Split returns the payload of a message, which is its first frame. The frames
// after it hold arrays that the encoder has moved out of the payload; no column
// that is read here is one. Every error is a *DecodeError around ErrEngineDead,
// ErrFrameCount or ErrPayloadSize.
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
