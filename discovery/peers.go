package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ownInterval is how often a Peers without Self looks at the machine's addresses
// again: an interface may get its address after the list has come.
const ownInterval = 30 * time.Second

// Errors of Peers.Run.
var (
	// ErrNoSource is returned by Run of a Peers without a source.
	ErrNoSource = errors.New("discovery: Peers needs a Source")
	// ErrSelf is what every error about Peers.Self wraps.
	ErrSelf = errors.New("discovery: not the host of a replica")
)

// Peers tells which replica of the gateway this one is, of how many, so that each
// can prefer a slice of the workers of its own. It finds that in a list of all
// replicas: its place is the place in the list, sorted by host as text and then by
// port, both in normal form, so that all replicas agree on the order whatever they
// get the list from.
//
// A replica that is not in the list and has a Self counts itself in. A headless
// service, for one, leaves out what is not ready, and the first requests may come
// before the next look-up. The others do not count it yet; for that long some
// slices overlap, which costs less than having none.
//
// Without Self, the replica is the one entry of the list that is at an address of
// this machine. Where no entry is, or several are, it cannot be told, and there is
// no slice.
type Peers struct {
	// Source tells of all replicas, by URLs like those of workers. Of each, host
	// and port count; entries with the same are one replica. So a name that stands
	// for addresses of both families needs a DNS.Network, or all are there twice.
	// DNS.EmptyOnNotFound is better left unset: with it, a name server that is just
	// being restarted makes every replica believe that it is alone.
	Source Source
	// Self is where this replica is, as the list has it: a host, which must then be
	// that of one replica only; host:port; or a URL. Names are not looked up. Empty:
	// see above.
	Self   string
	Logger *slog.Logger // nil means none

	// replica<<32 | replicas: in one word, so that no reader sees the one of an old
	// list with the other of a new one.
	place atomic.Uint64

	own func() ([]netip.Addr, error) // in tests; nil means ownAddrs

	// No other lock is taken with mu held, and nothing of anybody else's called.
	mu      sync.Mutex
	status  PeersStatus // without Sources
	problem string      // why the source gave up, until it emits again
}

// Place says how a replica stands in the list of replicas.
type Place uint8

const (
	PlaceUnknown   Place = iota // there was no list yet
	PlaceListed                 // it is in the list
	PlaceCountedIn              // it is not in the list, and counts itself in
	PlaceNotFound               // no entry of the list is seen to be at an address of this machine
	PlaceAmbiguous              // several entries may be this replica
)

func (p Place) String() string {
	switch p {
	case PlaceListed:
		return "listed"
	case PlaceCountedIn:
		return "counted_in"
	case PlaceNotFound:
		return "not_found"
	case PlaceAmbiguous:
		return "ambiguous"
	}
	return "unknown"
}

// MarshalText encodes the place as its name.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// PeersStatus is what a Peers knows.
type PeersStatus struct {
	Sources []SourceStatus `json:"sources"`
	Refused []Refusal      `json:"refused"` // entries of the newest set that are no replicas

	Peers   []string  `json:"peers"` // all that count, as host:port, in order; this one too, if it counts itself in
	Place   Place     `json:"place"`
	Self    string    `json:"self"`    // this one, as it stands in Peers; empty if that cannot be told
	Problem string    `json:"problem"` // what is wrong now; empty if nothing is
	Changed time.Time `json:"changed"` // when Place, Self, Replica or Replicas did

	// As Peers.Replica returns them.
	Replica  int `json:"replica"`
	Replicas int `json:"replicas"`
}

// Replica returns which replica this one is, from 0, and of how many; 0, 0 as long
// as that cannot be told. It never blocks, and may be called at any time.
func (p *Peers) Replica() (replica, replicas int) {
	place := p.place.Load()
	return int(place >> 32), int(uint32(place))
}

// Status returns the list, the place in it, and how the source is doing.
func (p *Peers) Status() PeersStatus {
	p.mu.Lock()
	st, problem := p.status, p.problem
	p.mu.Unlock()
	st.Peers, st.Refused = slices.Clone(st.Peers), slices.Clone(st.Refused)
	if p.Source != nil {
		st.Sources = statusOf(p.Source)
		if problem != "" {
			st.Sources[0].Problem = problem
		}
	}
	return st
}

// Run works until ctx ends, and then returns nil. The place stays: a gateway that is
// shutting down still has requests to route. Run returns an error at once if it
// cannot work at all. It is not called twice at the same time.
func (p *Peers) Run(ctx context.Context) error {
	l, err := p.lookout()
	if err != nil {
		p.mu.Lock()
		p.status.Problem = err.Error()
		p.mu.Unlock()
		return err
	}

	sets := make(chan []Worker, 1)
	emit := func(set []Worker) {
		p.sourceProblem("")
		set = slices.Clone(set)
		select { // only the newest matters
		case <-sets:
		default:
		}
		sets <- set // there is room: nobody else sends
	}
	var wg sync.WaitGroup
	wg.Go(func() { supervise(ctx, p.Source, emit, p.sourceFailed) })
	defer wg.Wait()

	again := time.NewTicker(ownInterval) // for one with a Self, nothing comes of it
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case set := <-sets:
			l.take(set)
		case <-again.C:
		}
		p.publish(l.look())
	}
}

func (p *Peers) lookout() (*lookout, error) {
	if p.Source == nil {
		return nil, ErrNoSource
	}
	l := &lookout{own: ownAddrs}
	if p.own != nil {
		l.own = p.own
	}
	if p.Self == "" {
		return l, nil
	}
	var err error
	l.self, err = parseSelf(p.Self)
	return l, err
}

func (p *Peers) sourceFailed(err error) {
	if p.sourceProblem(err.Error()) {
		p.log(slog.LevelError, "discovery: source of replicas failed, keeping its last list", "error", err)
	}
}

// sourceProblem notes what is wrong with the source, and reports whether that is news.
func (p *Peers) sourceProblem(what string) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = p.problem != what
	p.problem = what
	return news
}

// publish makes st what Status and Replica tell, and logs what is new in it.
func (p *Peers) publish(st PeersStatus) {
	p.mu.Lock()
	old := p.status
	moved := st.Place != old.Place || st.Self != old.Self || st.Replica != old.Replica || st.Replicas != old.Replicas
	st.Changed = old.Changed
	if moved {
		st.Changed = time.Now()
	}
	p.status = st
	p.place.Store(uint64(st.Replica)<<32 | uint64(uint32(st.Replicas)))
	p.mu.Unlock()

	for _, r := range st.Refused {
		if !slices.Contains(old.Refused, r) {
			p.log(slog.LevelError, "discovery: replica refused", "replica", r.Worker, "reason", r.Reason)
		}
	}
	if !moved && st.Problem == old.Problem {
		return
	}
	level := slog.LevelInfo
	if st.Problem != "" {
		level = slog.LevelWarn
	}
	p.log(level, "discovery: place among the replicas of the gateway", "place", st.Place, "self", st.Self,
		"replica", st.Replica, "replicas", st.Replicas, "problem", st.Problem)
}

func (p *Peers) log(level slog.Level, msg string, args ...any) {
	if p.Logger != nil {
		p.Logger.Log(context.Background(), level, msg, args...)
	}
}

// lookout looks for one replica in the list of all.
type lookout struct {
	// immutable
	self peer // no host: whichever is at an address of own
	own  func() ([]netip.Addr, error)

	known   bool
	peers   []peer // of the newest set that was good for something: sorted, each once
	refused []Refusal
	bad     string // what is wrong with the newest set as a whole
}

// take takes a complete set. What cannot be used is refused by itself. A set with
// nothing else in it is a mistake rather than an empty one, and must not make every
// replica believe that it is alone.
func (l *lookout) take(set []Worker) {
	var peers []peer
	l.refused, l.bad = nil, ""
	for _, w := range set {
		p, err := parsePeer(w.URL)
		if err != nil {
			l.refused = append(l.refused, refusal(w, err))
			continue
		}
		peers = append(peers, p)
	}
	if n := len(l.refused); n > 0 && len(peers) == 0 {
		l.bad = fmt.Sprintf("no usable entry among %d, keeping the last list", n)
		return
	}
	slices.SortFunc(peers, peer.compare)
	l.peers, l.known = slices.Compact(peers), true
}

// look returns what there is to say now.
func (l *lookout) look() PeersStatus {
	st := PeersStatus{Refused: l.refused, Problem: l.bad}
	if !l.known {
		return st
	}
	peers, at := l.peers, 0
	var problem string
	found, err := l.find()
	switch {
	case err != nil:
		st.Place, problem = PlaceNotFound, err.Error()
	case len(found) == 1:
		st.Place, at = PlaceListed, found[0]
	case len(found) > 1 && l.self.host == "":
		st.Place = PlaceAmbiguous
		problem = fmt.Sprintf("%d entries are at addresses of this machine, such as %v and %v, and Self does not say which is this replica", len(found), peers[found[0]], peers[found[1]])
	case len(found) > 1:
		st.Place = PlaceAmbiguous
		problem = fmt.Sprintf("%d entries are at %v, such as %v and %v, and Self has no port", len(found), l.self, peers[found[0]], peers[found[1]])
	case l.self.host == "":
		st.Place = PlaceNotFound
		problem = "no entry is at an address of this machine, and there is no Self"
	default:
		st.Place = PlaceCountedIn
		problem = fmt.Sprintf("%v is not in the list, and counts itself in", l.self)
		at, _ = slices.BinarySearchFunc(peers, l.self, peer.compare)
		peers = slices.Insert(slices.Clone(peers), at, l.self)
	}
	st.Problem = cmp.Or(st.Problem, problem)
	st.Peers = make([]string, len(peers))
	for i, p := range peers {
		st.Peers[i] = p.String()
	}
	if st.Place == PlaceListed || st.Place == PlaceCountedIn {
		st.Self, st.Replica, st.Replicas = st.Peers[at], at, len(peers)
	}
	return st
}

// find returns the indices of all entries that this replica may be.
func (l *lookout) find() (found []int, err error) {
	own := map[string]bool{l.self.host: true}
	if l.self.host == "" {
		addrs, err := l.own()
		if err != nil {
			return nil, fmt.Errorf("the addresses of this machine cannot be read: %w", err)
		}
		for _, a := range addrs {
			own[a.Unmap().WithZone("").String()] = true
		}
	}
	for i, p := range l.peers {
		if own[p.host] && (l.self.port == 0 || l.self.port == p.port) {
			found = append(found, i)
		}
	}
	return found, nil
}

// ownAddrs returns the addresses of the machine's interfaces.
func ownAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs, nil
}

// peer is where a replica is, in normal form.
type peer struct {
	host string
	port int // 0: some port, of a Self that has none
}

// compare orders by host first. So a Self without a port sorts where it will stand
// in the list of the others, who do know its port.
func (p peer) compare(q peer) int {
	return cmp.Or(strings.Compare(p.host, q.host), cmp.Compare(p.port, q.port))
}

func (p peer) String() string {
	if p.port == 0 {
		return p.host
	}
	return net.JoinHostPort(p.host, strconv.Itoa(p.port))
}

// parsePeer reads the URL of a replica.
func parsePeer(raw string) (peer, error) {
	u, err := parseWorkerURL(raw)
	if err != nil {
		return peer{}, err
	}
	host, err := peerHost(u.Hostname())
	if err != nil {
		return peer{}, fmt.Errorf("%w: %q: %w", ErrURL, urlKey(u), err)
	}
	return peer{host, portOf(u)}, nil
}

// portOf returns the port of a URL in normal form.
func portOf(u *url.URL) int {
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
		return port
	case u.Scheme == "https":
		return 443
	}
	return 80
}

// CheckSelf reports what is wrong with a Peers.Self, as ErrSelf, for hosts that want
// to tell before Run does.
func CheckSelf(self string) error {
	if self == "" {
		return nil
	}
	_, err := parseSelf(self)
	return err
}

// parseSelf reads a host, with or without a port, or a URL.
func parseSelf(raw string) (peer, error) {
	bad := func(err error) (peer, error) {
		return peer{}, fmt.Errorf("%w: %q: %w", ErrSelf, redact(raw), err)
	}
	text := strings.TrimSpace(raw)
	if strings.Contains(text, "://") {
		p, err := parsePeer(text)
		if err != nil {
			return peer{}, fmt.Errorf("%w: %s", ErrSelf, strings.TrimPrefix(err.Error(), "discovery: "))
		}
		return p, nil
	}
	var p peer
	host := unbracketed(text)
	if h, port, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > maxPort {
			return bad(fmt.Errorf("port is outside 1..%d", maxPort))
		}
		host, p.port = h, n
	}
	var err error
	if p.host, err = peerHost(host); err != nil {
		return bad(err)
	}
	return p, nil
}

// peerHost brings a host into the one spelling by which all replicas sort it. The
// dot that ends a name and the zone of an address go: both say how this machine gets
// there, and another one may do without.
func peerHost(host string) (string, error) {
	clean, ok := cleanHost(strings.TrimSuffix(host, "."))
	if !ok {
		return "", errors.New("host is neither an IP address nor a host name in ASCII")
	}
	addr, err := netip.ParseAddr(clean)
	switch {
	case err != nil:
		return clean, nil
	case addr.IsUnspecified():
		return "", errors.New("stands for all addresses of a machine")
	}
	return addr.WithZone("").String(), nil
}
