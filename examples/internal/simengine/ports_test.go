package simengine

import (
	"net"
	"strconv"
	"testing"
)

func TestLoadRangeIsPackedAsTheEnginePacksIt(t *testing.T) {
	for _, tt := range []struct{ kv, replay, ranks, want int }{
		{5557, 0, 1, 5558},
		{5557, 0, 2, 5559},
		{5557, 5558, 1, 5559},
		{5557, 5558, 4, 5562},
		{5557, 6000, 2, 5559}, // far away: no overlap
		{5557, 5550, 2, 5559}, // below
		{5557, 5561, 2, 5559}, // right behind
		{5557, 5560, 2, 5562},
		{65533, 0, 1, 65534},
		{65533, 0, 2, 0}, // 65535 and 65536
		{65534, 65535, 1, 0},
		{0, 0, 1, 0},
	} {
		got, err := LoadPortBase(tt.kv, tt.replay, tt.ranks)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("kv %d, replay %d, %d ranks: %d, %v; want %d", tt.kv, tt.replay, tt.ranks, got, err, tt.want)
		}
	}
}

func TestClaimedPortsAreFreeAndNobodyElses(t *testing.T) {
	taken := map[int]bool{}
	for range 50 {
		base, release, err := ClaimPorts("127.0.0.1", 16)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for port := base; port < base+16; port++ {
			if taken[port] {
				t.Fatalf("port %d was claimed twice", port)
			}
			taken[port] = true
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base)))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// Two processes are as two sets of claims.
func TestProcessesClaimPortsOfBlocksOfTheirOwn(t *testing.T) {
	var one, other portClaims
	blocks := map[int]*portClaims{}
	for i := range 200 {
		c := []*portClaims{&one, &other}[i%2]
		base, release, err := c.claim("127.0.0.1", 16) // more than one block has
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		block := (base - autoPortFirst) / blockPorts
		if owner := blocks[block]; owner != nil && owner != c {
			t.Fatalf("port %d is in a block of another process", base)
		}
		blocks[block] = c
	}
	if len(blocks) < 4 {
		t.Errorf("200 ranges of 16 ports are in %d blocks of %d", len(blocks), blockPorts)
	}
}

func TestBlockIsGivenBackWithItsLastRange(t *testing.T) {
	var c portClaims
	_, release1, err := c.claim("127.0.0.1", 16)
	if err != nil {
		t.Fatal(err)
	}
	_, release2, err := c.claim("127.0.0.1", 16)
	if err != nil {
		t.Fatal(err)
	}
	first := c.blocks[0].first
	release1()
	if b, err := lockBlock(first); err == nil {
		b.lock.Close()
		t.Error("the block was given back too early")
	}
	release2()
	if len(c.blocks) != 0 {
		t.Errorf("%d blocks are kept", len(c.blocks))
	}
}

func TestPortsInUseAreNotFree(t *testing.T) {
	base, release, err := ClaimPorts("127.0.0.1", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base+3)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if allFree("127.0.0.1", base, 4) {
		t.Error("a range with a listener in it passed for free")
	}
	if !allFree("127.0.0.1", base, 3) {
		t.Error("the ports before the listener did not pass for free")
	}
}

func TestReleasedPortsCanBeClaimedAgain(t *testing.T) {
	base, release, err := ClaimPorts("127.0.0.1", 3)
	if err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if claims.claimed(base, 3) {
		t.Error("the range is still claimed")
	}
}
