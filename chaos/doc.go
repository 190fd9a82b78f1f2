// Package chaos tests the library on a network that fails. It is a module of its own,
// and all of it but this file is behind the build tag chaos:
//
//	go test -tags chaos ./...
//
// Everything in it is real: engines with HTTP servers and ZeroMQ PUB sockets, the
// subscriber with its SUB sockets, a gateway made of the library's parts as README
// makes one, and clients. Between the gateway and every port of an engine is a link
// that can fail: a proxy of toxiproxy for stalls, resets, refusals, and links that are
// slow or end in the middle; and for peers that vanish without a word a socket filter,
// which makes the kernel drop their packets, SYN, FIN and RST included. All of it is on
// loopback and needs no privileges; it needs Linux.
//
// # What holds throughout
//
// Every request gets a whole answer, and one whose answer breaks off after it has begun
// is cut visibly. No pick fails while there is a healthy worker. The books end at 0,
// and no goroutine and no descriptor is left.
//
// An auditor looks at every view of the table and knows what engines say and which links
// are cut. A worker may be trusted only with the numbers that its engine reports, of all
// ranks that it has, and for no longer than the freshness window after the last moment at
// which they could arrive.
//
// Nothing is concluded from how long something took, apart from three bounds that are
// what is promised, with seconds of slack: that a stale worker is noticed within the
// window, a vanished peer within its heartbeat, and that closing takes a second.
//
// # The lessons
//
// What has gone wrong in the field, and where each is tested. A test here checks that
// the tests of this list exist.
//
//	 1  two report a queue, a third never reports
//	      selector.TestTwoReportAQueueAndAThirdNeverDoesSoTheThirdIsNotTakenForIdle
//	      selector.TestUnreportedWorkerAmongBusyOnesDoesNotTakeEveryRequest
//	 2  one report, then silence forever
//	      selector.TestOneReportAndThenSilenceForeverIsGoneFromEveryDecision
//	      selector.TestWhatAWorkerSaidBeforeItFellSilentChangesNoChoice
//	      chaos.TestOneReportAndThenSilenceForeverIsGoneFromEveryDecision
//	 3  a late report of a removed worker, whose URL is added again
//	      load.TestALateReportOfARemovedWorkerReachesNothing
//	      discovery.TestRemovedWorkerIsGoneAndItsLateReportsTouchNobody
//	 4  a request of a removed worker ends after its URL was added again
//	      load.TestALateReleaseActsOnTheIncarnationThatItWasTakenFrom
//	      selector.TestALateReleaseOfAnOldIncarnationLeavesTheNewOnesPickAlone
//	 5  the client leaves, the handler panics, Done is called twice or elsewhere
//	      selector.TestWhateverBecomesOfARequestItsWorkerEndsWithNothingInFlight
//	      examples/internal/gateway.TestClientThatLeavesReleases
//	      examples/internal/gateway.TestPanicInTheHandlerReleases
//	      chaos.TestClientsThatGoAwayInEveryWayLeaveNothingInFlight
//	 6  a hundred picks at once between two reports
//	      selector.TestAHundredGoroutinesThatPickAtOnceSpreadOverFourIdleWorkers
//	      selector.TestPickersThatAllChoseTheSameIdleWorkerDoNotAllGetIt
//	 7  all loads equal, also right after a start
//	      selector.TestEqualLoadsSpreadOverAllWorkers
//	      selector.TestTheFirstPickOfANewSelectorIsNotAlwaysOfTheSameWorker
//	 8  the last batch says that one is running, then silence
//	      load.TestATerminalBatchThatSaysBusyLeavesTheRankIdle
//	      load.TestTheLastBatchOfBothEnginesLeavesItsRankIdle
//	      examples/ranks.TestQuietRankGetsItsShare
//	 9  eight ranks advertised, four publishers alive
//	      discovery.TestEightRanksAdvertisedFourAlive
//	      chaos.TestEightRanksAdvertisedFourAlive
//	10  four ranks from port 65533 on
//	      discovery.TestRanksPastTheLastPortCountButCannotBeDialled
//	      discovery.TestRankPastTheLastPortKeepsItsWorkerUntrusted
//	      chaos.TestARankPastTheLastPortKeepsItsWorkerFromBeingTrusted
//	11  the engine renames a field
//	      load.TestFieldThatIsGoneFromTheWireIsNamedAsNeverNonzero
//	12  numbers that cannot be
//	      snapshot.TestASnapshotWithABrokenCountIsRefusedSoThatItNeverLooksIdle
//	      snapshot.TestAStatWithABrokenCountIsRefusedSoThatItNeverLooksIdle
//	      snapshot/vllm.TestLoadsAreKnownUnknownOrRefused
//	      tokenspeed.TestALoadThatCannotBeTrueIsRefusedAndTheBatchStands
//	      discovery.TestBrokenCountsCostTheEntry
//	      load.TestReportsWithImpossibleNumbersAreRefusedOrHaveThemMadeUnknown
//	      selector.TestAReportThatIsRefusedIsNeverTheBest
//	      selector.TestABootingWorkerIsNotTakenForIdle
//	13  two feeds for one rank
//	      load.TestOneSourceOwnsARankWhileItsReportIsFresh
//	      discovery.TestPushTakesOverFromPollAndBack
//	      chaos.TestTwoFeedsOfOneRankAreNeverMixed
//	14  set aside, then only unchanged reports
//	      load.TestAnOverloadedWorkerIsSetAsideUntilItsNextReportEvenAnUnchangedOne
//	15  the peer vanishes, packets are dropped
//	      snapshot/zmqsub.TestPeerThatVanishesIsHeardAgainWhenItIsBack
//	      chaos.TestAPeerThatVanishesWithoutAWordIsGivenUpAndHeardWhenItIsBack
//	      chaos.TestLoadSocketsThatFailInEveryWay
//	      chaos.TestAllLoadSocketsDieAtOnceAndPicksGoOn
//	16  the publisher restarts in the same pod, from sequence 0
//	      snapshot/zmqsub.TestPublisherThatRestartsIsHeardAgainFromSequenceZero
//	      load.TestALowerSequenceNumberAfterARestartIsTakenAtOnce
//	      chaos.TestAPublisherThatRestartsInTheSamePodIsBelievedAtOnce
//	      chaos.TestAHalfOpenLinkDoesNotHideARestartedPublisher
//	17  10,000 unchanged reports a second from each of eight ranks
//	      snapshot/zmqsub.TestRoundsArePacedWhileMessagesFlow
//	      snapshot/zmqsub.TestFloodOnOneSocketStarvesNoOther
//	      chaos.TestTenThousandUnchangedReportsASecondFromEachOfEightRanks
//	18  IPv6 and wildcard hosts
//	      discovery.TestIPv6HostsHaveBracketsExactlyOnce
//	      snapshot/zmqsub.TestIPv6PeerIsHeard
//	      chaos.TestHostsThatEnginesAdvertise
//	19  /server_info hangs, is garbage, is a gibibyte
//	      discovery.TestBadWorkersDelayNobodyAndHaveEachTheirStatus
//	      discovery.TestServerInfoThatIsOneGibibyteIsRefusedEarly
//	      chaos.TestServerInfoThatHangsOrIsGarbageOrAGibibyteDelaysNobody
//	      chaos.TestAnswersThatAreCutOffAreNoAnswers
//	20  an unhealthy worker without load among the candidates
//	      load.TestAnUnhealthyWorkerIsInNoViewAndKeepsWhatItHas
//	      selector.TestAnUnhealthyIdleWorkerTakesNoPartAndTiltsNothing
//	21  /v1/loads without a load
//	      discovery.TestAnswersThatAreNoLoadAreNeverLeastLoaded
//	      discovery.TestNoSuchEndpointIsAskedForAgainSlowly
//	      chaos.TestAnswersThatAreNoLoadAreNeverLeastLoaded
//	      chaos.TestPollsOnLinksThatFailInEveryWay
//	22  a backlog of 10,000 messages
//	      snapshot/zmqsub.TestAfterABacklogOnlyTheNewestIsUsed
//	      snapshot/zmqsub.TestBacklogThatArrivesInPiecesIsWorkedOffBeforeAnythingIsDelivered
//	      chaos.TestABacklogOfAMinuteThatArrivesAtOnce
//	23  a dispatch between the reports of two ranks
//	      load.TestADispatchBetweenTheReportsOfTwoRanksIsCountedOnTop
//	      selector.TestOneOwnDispatchBetweenTheReportsOfTwoRanksIsThree
//	24  a reply with index 0 while rank 0 is busy
//	      load.TestAUtilityReplyWithIndex0LeavesABusyRank0Alone
//	25  a context is cancelled while reserving or sending
//	      load.TestAContextCancelledWhileSendingReleasesTheReservation
//	      chaos.TestAContextCancelledWhileSendingReleasesTheReservation
//	26  KV usage NaN at the first rank scanned
//	      load.TestTheScoreOfARank
//	      selector.TestAKVUsageThatIsNotANumberAtTheFirstRankScannedDoesNotWinForever
//	27  running and waiting overflow 64 bits
//	      load.TestTheDepthOfAWorkerIsTheSumOverItsRanksAndSaturates
//	      load.TestSumsOverWorkersWithTheLargestDepthsDoNotOverflow
//	      selector.TestADepthThatOverflowsIsNeverTheBest
//	28  two replicas restart together and learn their index
//	      discovery.TestTwoReplicasThatRestartTogetherAreNeverBothWithoutASliceForLongerThanOneRefresh
//	      selector.TestPicksStayValidWhileAReplicaLearnsItsIndex
//	      chaos.TestTwoReplicasThatRestartTogetherPickAllTheWhile
//	29  the worker set changes a hundred times a second under picks
//	      selector.TestPicksGoOnWhileEverythingElseChanges
//	      chaos.TestAWorkerSetThatChangesAHundredTimesASecondUnderPicks
//	30  headers that promise far more than there is, and nesting
//	      internal/msgpack.TestSkippingFindsTheEndOfEveryValueUpToTheDepthLimit
//	      snapshot.TestHostilePayloadsAreRefusedForNoMoreThanTheError
//	      snapshot/vllm.TestHostilePayloadsAreRefusedForNoMoreThanTheError
//	      tokenspeed.TestHostilePayloadsAreRefusedForNoMoreThanTheError
//	31  the advertised host is another machine
//	      discovery.TestAdvertisedForeignHostIsNotDialledUnlessAllowed
//	      discovery.TestForeignHostIsNotSubscribed
//	      chaos.TestAForeignHostIsDialledOnlyWhereThatIsAllowed
//	32  shutdown while 1,024 sockets reconnect to dead peers
//	      snapshot/zmqsub.TestClosingDoesNotWaitForDeadPeers
//	      chaos.TestShutdownWhileAThousandSocketsReconnectToDeadPeers
//	33  the clock jumps an hour
//	      load.TestAWallClockThatJumpsAnHourTurnsNoReportStaleOrFresh
//	      load.TestTheEnginesWallClockIsShownAndNeverComparedWithOurs
//	      chaos.TestAnEnginesClockThatJumpsAnHourTurnsNothingStaleOrFresh
//	34  one request is picked three times
//	      selector.TestEachAttemptOfARequestIsAPickOfItsOwn
//	      examples/internal/gateway.TestTriesAreBoundedAndNoEngineIsTriedTwice
//	      chaos.TestARequestThatIsPickedThreeTimesIsThreePicks
//
// Besides those of the list, there are links that trickle, links that come and go all
// the time, answers that end in the middle, engines that move their load ports and change
// their ranks, load ports that lead to another machine from one moment to the next, and
// name servers that fail. One test does everything at random; CHAOS_FOR=10m has it go on
// for longer.
package chaos
