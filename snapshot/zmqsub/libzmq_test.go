//go:build cgo && linux

package zmqsub

import "testing"

// TestAllTheSameOverLibzmq holds libzmq, where it is not the only way, to what the
// other way is held to.
func TestAllTheSameOverLibzmq(t *testing.T) {
	overLibzmq = true
	defer func() { overLibzmq = false }()
	for _, test := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"EveryRankIsHeardUnderItsOwnEndpoint", TestEveryRankIsHeardUnderItsOwnEndpoint},
		{"BothMessageTypesAndTopicsAreRead", TestBothMessageTypesAndTopicsAreRead},
		{"PublisherThatRestartsIsHeardAgainFromSequenceZero", TestPublisherThatRestartsIsHeardAgainFromSequenceZero},
		{"PublisherThatComesLateIsHeard", TestPublisherThatComesLateIsHeard},
		{"AfterABacklogOnlyTheNewestIsUsed", TestAfterABacklogOnlyTheNewestIsUsed},
		{"GarbageIsCountedByReasonAndValidMessagesStillArrive", TestGarbageIsCountedByReasonAndValidMessagesStillArrive},
		{"FrameBeyondTheSocketsLimitCostsTheConnectionOnly", TestFrameBeyondTheSocketsLimitCostsTheConnectionOnly},
		{"PeerThatSpeaksSomethingElseIsLeftForAFreshConnection", TestPeerThatSpeaksSomethingElseIsLeftForAFreshConnection},
		{"FloodOnOneSocketStarvesNoOther", TestFloodOnOneSocketStarvesNoOther},
		{"PeerThatAcceptsAndSaysNothingIsLeftForAFreshConnection", TestPeerThatAcceptsAndSaysNothingIsLeftForAFreshConnection},
		{"PeerThatVanishesIsHeardAgainWhenItIsBack", TestPeerThatVanishesIsHeardAgainWhenItIsBack},
		{"IPv6PeerIsHeard", TestIPv6PeerIsHeard},
		{"PeerGivenByNameIsHeard", TestPeerGivenByNameIsHeard},
		{"SubscribeStopAndCloseFromEverywhereAtOnce", TestSubscribeStopAndCloseFromEverywhereAtOnce},
		{"ClosingDoesNotWaitForDeadPeers", TestClosingDoesNotWaitForDeadPeers},
		{"StoppedSubscriptionsGiveTheirDescriptorsBack", TestStoppedSubscriptionsGiveTheirDescriptorsBack},
		{"HandshakesThatFailLeaveNothingBehind", TestHandshakesThatFailLeaveNothingBehind},
		{"OutOfDescriptorsSubscribeSaysSo", TestOutOfDescriptorsSubscribeSaysSo},
	} {
		t.Run(test.name, test.f)
	}
}
