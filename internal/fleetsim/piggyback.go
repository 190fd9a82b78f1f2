package fleetsim

// batches is what the output batches of a run share.
type batches struct{}

func (s *sim) shared() bool { return s.config.Gateways > 1 || s.config.Faults.Hidden > 0 }

func (s *sim) piggybacks(req int32) bool { return false }

func (w *wire) start(r *rank, req int32) {}
func (w *wire) end(r *rank, req int32)   {}

func (s *sim) sendBatches(r *rank) {}

func (s *sim) batchSeen(i int32, g *gateway) {}
