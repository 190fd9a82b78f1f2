package load

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/snapshot/vllm"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// Captured from the engines' encoders, or written by their rules.
const (
	slim14    = "9eb34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b01020564cd0190"
	slim10    = "9ab34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b01"
	slim9     = "99b34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b"
	slimTwo   = "9eb34261746368546f6b656e49444f7574536c696d92a161a16292910a911492a0a473746f7092030492010192000092909092909001020564cd0190"
	slimRag   = "9eb34261746368546f6b656e49444f7574536c696d92a161a16291910a92a0a473746f70920304920101920000929090929090010205640a"
	slimOver  = "9eb34261746368546f6b656e49444f7574536c696d92a161a16292910a911492a0a473746f70920304920101920000929090929090010205640a"
	vllmEnd   = "980191dc0010a1729107c0c0c000c0c0c0c0c0c0c000c0c083b06e756d5f72756e6e696e675f7265717303b06e756d5f77616974696e675f7265717305ae6b765f63616368655f7573616765cb3fe8000000000000cb3ff8000000000000c091a172c0c0"
	vllmBad   = "980191dc0010a1729107c0c0c000c0c0c0c0c0c0c000c0c083b06e756d5f72756e6e696e675f72657173ffb06e756d5f77616974696e675f7265717305ae6b765f63616368655f7573616765cb3fe8000000000000cb3ff8000000000000c091a172c0c0"
	vllmStats = "98019083b06e756d5f72756e6e696e675f7265717303b06e756d5f77616974696e675f7265717305ae6b765f63616368655f7573616765cb3fe8000000000000cb3ff8000000000000c0c0c0c0"
	vllmReply = "980090c0cb3ff8000000000000930ac0c0c0c0c0"
	vllmWave  = "980090c0cb3ff8000000000000c0c003c0"
)

func payload(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tokenSpeedBatch(t *testing.T, s string) Batch {
	t.Helper()
	var sum tokenspeed.Summary
	err := sum.Decode(payload(t, s))
	return FromTokenSpeed(&sum, err)
}

func vllmBatch(t *testing.T, s string) Batch {
	t.Helper()
	var out vllm.Outputs
	err := out.Decode(payload(t, s))
	return FromVLLM(&out, err)
}

func TestWhatABatchSaysInTheTermsOfAReport(t *testing.T) {
	pages := Report{Running: 2, Waiting: 5, KVUsed: Known[int64](100), KVCapacity: Known[int64](400), KVUsage: Known(0.25), Source: SourceBatch}
	stats := Report{Running: 3, Waiting: 5, KVUsage: Known(0.75), Source: SourceBatch}
	for _, c := range []struct {
		name     string
		batch    Batch
		rank     int
		load     *Report
		finished string
		err      error
	}{
		{"TokenSpeed, 14 elements", tokenSpeedBatch(t, slim14), 1, &pages, "vec-1", nil},
		{"TokenSpeed, 10 elements", tokenSpeedBatch(t, slim10), 1, nil, "vec-1", nil},
		{"TokenSpeed, 9 elements", tokenSpeedBatch(t, slim9), NoRank, nil, "vec-1", nil},
		{"TokenSpeed, one of two ended", tokenSpeedBatch(t, slimTwo), 1, &pages, "b", nil},
		{"TokenSpeed, ragged", tokenSpeedBatch(t, slimRag), 1, nil, "b", tokenspeed.ErrRagged},
		{"TokenSpeed, more pages in use than there are", tokenSpeedBatch(t, slimOver), 1, nil, "b", tokenspeed.ErrOutOfRange},
		{"TokenSpeed, cut off", tokenSpeedBatch(t, slim14[:60]), NoRank, nil, "", tokenspeed.ErrTruncated},
		{"vLLM, terminal", vllmBatch(t, vllmEnd), 1, &stats, "r", nil},
		{"vLLM, statistics that are none", vllmBatch(t, vllmBad), 1, nil, "r", vllm.ErrNegative},
		{"vLLM, statistics alone", vllmBatch(t, vllmStats), 1, &stats, "", nil},
		{"vLLM, reply to a call", vllmBatch(t, vllmReply), NoRank, nil, "", nil},
		{"vLLM, notice of a wave", vllmBatch(t, vllmWave), NoRank, nil, "", nil},
		{"vLLM, cut off", vllmBatch(t, vllmEnd[:60]), NoRank, nil, "", vllm.ErrTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.batch
			if b.Rank != c.rank || !errors.Is(b.Err, c.err) || (c.err == nil) != (b.Err == nil) {
				t.Errorf("rank %d and %v, want %d and %v", b.Rank, b.Err, c.rank, c.err)
			}
			if b.HasLoad != (c.load != nil) || b.HasLoad && b.Load != *c.load {
				t.Errorf("load %v %+v, want %+v", b.HasLoad, b.Load, c.load)
			}
			var finished string
			for _, id := range b.Finished {
				finished += string(id)
			}
			if finished != c.finished {
				t.Errorf("ends %q, want %q", finished, c.finished)
			}
		})
	}
}

func TestAUtilityReplyWithIndex0LeavesABusyRank0Alone(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustObserve(t, c, batch(0, 7, 2, 0.9))
	for _, message := range []string{vllmReply, vllmWave} {
		mustObserve(t, c, vllmBatch(t, message))
		wantRank(t, c, 0, 7, 2, Known(0.9), 1)
	}
	if st := c.Status(); st.Batches != 1 || len(st.Dropped) != 0 {
		t.Errorf("the status shows %+v", st)
	}
}

func TestAKVUsageThatIsNoneIsAFlawOfTheReport(t *testing.T) {
	// The terminal message, with a usage of NaN.
	b := vllmBatch(t, strings.Replace(vllmEnd, "cb3fe8000000000000", "cb7ff8000000000000", 1))
	if b.Err != nil || b.Load != (Report{Running: 3, Waiting: 5, Source: SourceBatch, Flaws: FlawKVUsage}) {
		t.Errorf("%+v", b)
	}
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "r2", 1)
	mustObserve(t, c, b)
	if rs := c.worker.Status().Ranks[1]; rs.Flawed != 1 || rs.Report.Running != 3 || rs.Report.KVUsage.IsKnown() {
		t.Errorf("the rank's status shows %+v", rs)
	}
}

func TestRequestsThatVLLMHasSkippedAreQueuedToo(t *testing.T) {
	o := vllm.Outputs{Kind: vllm.KindBatch, Load: vllm.Load{Known: true, Running: 1, Waiting: 2, Skipped: vllm.Known[int64](3)}}
	if b := FromVLLM(&o, nil); b.Load.Running != 1 || b.Load.Waiting != 5 || b.Load.KVUsage.IsKnown() {
		t.Errorf("the report is %+v", b.Load)
	}
}

func TestTheLastBatchOfBothEnginesLeavesItsRankIdle(t *testing.T) {
	for name, c := range map[string]struct {
		id    string
		batch Batch
		kv    float64
	}{
		"TokenSpeed": {"vec-1", tokenSpeedBatch(t, slim14), 0.25},
		"vLLM":       {"r", vllmBatch(t, vllmEnd), 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
			mustReserveRank(t, conn, c.id, 1)
			mustObserve(t, conn, c.batch)
			wantRank(t, conn, 1, 0, 0, Known(c.kv), 0)
			if st := conn.Status(); st.Finished != 1 || st.InFlight != 0 {
				t.Errorf("the status shows %+v", st)
			}
		})
	}
}

func TestEveryUnreadableMessageIsCountedByItsReason(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "b", 1)
	for want, b := range map[string]Batch{
		"truncated":    tokenSpeedBatch(t, slim14[:60]),
		"ragged":       tokenSpeedBatch(t, slimRag),
		"out_of_range": tokenSpeedBatch(t, slimOver),
		"nil":          vllmBatch(t, "c0"),
		"negative":     vllmBatch(t, vllmBad),
	} {
		if err := c.Observe(b); err == nil || c.Status().Dropped[want] != 1 {
			t.Errorf("%v was counted as %v, want %s", err, c.Status().Dropped, want)
		}
	}
	if c.worker.InFlight() != 0 {
		t.Error("the end of a request got lost with its batch")
	}
}
