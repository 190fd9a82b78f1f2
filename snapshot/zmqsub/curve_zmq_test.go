//go:build cgo

package zmqsub

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func needCurve(t *testing.T) {
	t.Helper()
	if !zmq.HasCurve() {
		t.Skip("libzmq was built without CURVE")
	}
}

type keyPair struct{ public, secret string }

func newKeys(t *testing.T) keyPair {
	t.Helper()
	public, secret, err := zmq.NewCurveKeypair()
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{public, secret}
}

// publishCurve binds a publisher that speaks CURVE and nothing else.
func publishCurve(t *testing.T, ctx *zmq.Context, endpoint string, keys keyPair) *publisher {
	t.Helper()
	return publishWith(t, ctx, endpoint, 0, func(soc *zmq.Socket) error {
		return errors.Join(soc.SetCurveServer(1), soc.SetCurveSecretkey(keys.secret), soc.SetZapDomain("load"))
	})
}

// admit has the publishers of a context ask who may listen (ZeroMQ's ZAP), and
// counts whom they refuse.
func admit(t *testing.T, ctx *zmq.Context, public string) (refused *atomic.Int64) {
	t.Helper()
	soc, err := ctx.NewSocket(zmq.REP)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(soc.SetLinger(0), soc.SetRcvtimeo(10*time.Millisecond), soc.Bind("inproc://zeromq.zap.01")); err != nil {
		t.Fatal(err)
	}
	refused = new(atomic.Int64)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		defer soc.Close()
		for {
			select {
			case <-stop:
				return
			default:
			}
			// version, request, domain, address, identity, mechanism, key
			m, err := soc.RecvMessage(0)
			if err != nil {
				continue
			}
			code, text := "400", "no"
			if len(m) == 7 && m[5] == "CURVE" && zmq.Z85encode(m[6]) == public {
				code, text = "200", "OK"
			} else {
				refused.Add(1)
			}
			soc.SendMessage(m[0], m[1], code, text, "", "")
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return refused
}

// heardOver has a publisher send until it is heard.
func heardOver(t *testing.T, p *publisher, in *inbox) {
	t.Helper()
	seq := time.Now().UnixNano()
	first := seq
	eventually(t, "the publisher", func() bool {
		p.send(message(seq))
		seq++
		r, ok := in.last()
		return ok && r.Seq >= first
	})
}

func TestCurvePublisherIsHeardWithItsKey(t *testing.T) {
	needCurve(t)
	server, other, client := newKeys(t), newKeys(t), newKeys(t)
	for name, test := range map[string]struct {
		curve Curve
		zap   string // the only client that is admitted
	}{
		"by anybody":              {Curve{ServerKey: server.public}, ""},
		"by a client it knows":    {Curve{ServerKey: server.public, PublicKey: client.public, SecretKey: client.secret}, client.public},
		"with a key of its own":   {Curve{ServerKey: other.public, ServerKeyOf: func(string) string { return server.public }}, ""},
		"with the key of all":     {Curve{ServerKey: server.public, ServerKeyOf: func(string) string { return "" }}, ""},
		"though others are given": {Curve{ServerKeyOf: func(string) string { return server.public }, PublicKey: client.public, SecretKey: client.secret}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := newContext(t)
			if test.zap != "" {
				admit(t, ctx, test.zap)
			}
			p := publishCurve(t, ctx, "tcp://127.0.0.1:*", server)
			s := newSubscriber(t, Config{Curve: &test.curve})
			var in inbox
			subscribe(t, s, p.endpoint, in.deliver)
			p.await()
			p.send(message(1))
			eventually(t, "the publisher", in.has(1))
			p.send(messageOf(2, make([]byte, snapshot.MaxPayload)))
			p.send(message(3))
			eventually(t, "what follows a large message", in.has(3))
			if e := s.Stats().Endpoints[0]; !e.Curve || e.LastMessage.IsZero() {
				t.Errorf("stats: %+v", e)
			}
		})
	}
}

func TestServerKeyIsAskedForByEndpoint(t *testing.T) {
	needCurve(t)
	ctx := newContext(t)
	var keys sync.Map // by endpoint
	s := newSubscriber(t, Config{Curve: &Curve{ServerKeyOf: func(endpoint string) string {
		key, _ := keys.Load(endpoint)
		text, _ := key.(string)
		return text
	}}})
	var publishers [3]*publisher
	var in [3]inbox
	for i := range publishers {
		k := newKeys(t)
		publishers[i] = publishCurve(t, ctx, "tcp://127.0.0.1:*", k)
		keys.Store(publishers[i].endpoint, k.public)
		subscribe(t, s, publishers[i].endpoint, in[i].deliver)
	}
	for i, p := range publishers {
		p.await()
		p.send(message(int64(i)))
		eventually(t, "the publisher", in[i].has(int64(i)))
	}

	// There is no way around a key that is not there.
	for problem, key := range map[string]string{"missing": "", "40": "tooshort"} {
		keys.Store(rank0, key)
		_, err := s.Subscribe(rank0, func(snapshot.Delivery) {})
		var ke *KeyError
		if !errors.As(err, &ke) || ke.Endpoint != rank0 || !strings.Contains(ke.Problem, problem) {
			t.Errorf("Subscribe with the key %q: %v", key, err)
		}
	}
	if n := len(s.Stats().Endpoints); n != len(publishers) {
		t.Errorf("%d endpoints", n)
	}
}

func TestEngineThatComesBackWithAnotherKeyIsHeardAgain(t *testing.T) {
	needCurve(t)
	ctx := newContext(t)
	old, fresh := newKeys(t), newKeys(t)
	var key atomic.Value
	key.Store(old.public)
	s := newSubscriber(t, Config{
		Silence: 100 * time.Millisecond,
		Curve:   &Curve{ServerKeyOf: func(string) string { return key.Load().(string) }},
	})
	p := publishCurve(t, ctx, "tcp://127.0.0.1:*", old)
	var in inbox
	subscribe(t, s, p.endpoint, in.deliver)
	heardOver(t, p, &in)
	p.close()

	p = publishCurve(t, ctx, p.endpoint, fresh)
	before := s.Stats().Reconnects
	eventually(t, "fresh connections with the old key", func() bool { return s.Stats().Reconnects >= before+3 })
	key.Store("not a key at all") // must not end it either
	before = s.Stats().Reconnects
	eventually(t, "a look at the bad key", func() bool {
		p.send(message(0))
		return s.Stats().Reconnects == before
	})
	key.Store(fresh.public)
	heardOver(t, p, &in)
}

// All of these want to be heard, or have something to say; nobody listens.
func TestWhoeverDoesNotHaveTheKeyIsNotHeard(t *testing.T) {
	needCurve(t)
	server, other, client := newKeys(t), newKeys(t), newKeys(t)
	ctx := newContext(t)
	refused := admit(t, ctx, client.public)
	const unknown = "the engine does not know our key"
	right := &Curve{ServerKey: server.public, PublicKey: client.public, SecretKey: client.secret}
	curve := publishCurve(t, ctx, "tcp://127.0.0.1:*", server)
	plain := publish(t, ctx, "tcp://127.0.0.1:*")

	for name, test := range map[string]struct {
		curve *Curve
		peer  *publisher
		raw   func(net.Conn)
	}{
		"the key is another's":                   {&Curve{ServerKey: other.public, PublicKey: client.public, SecretKey: client.secret}, curve, nil},
		unknown:                                  {&Curve{ServerKey: server.public}, curve, nil},
		"we have no key":                         {nil, curve, nil},
		"the engine speaks in plain":             {right, plain, nil},
		"the peer speaks plain ZMTP 3.0":         {right, nil, blurters()["ZMTP 3.0"]},
		"the peer speaks ZMTP 2.0":               {right, nil, blurters()["ZMTP 2.0"]},
		"the peer speaks ZMTP 1.0":               {right, nil, blurters()["ZMTP 1.0"]},
		"the peer pretends to speak CURVE":       {right, nil, blurt(greeting("CURVE"), readyPub, zmtp3())},
		"the peer says nothing but its greeting": {right, nil, blurt(greeting("CURVE"))},
		"the peer hangs up":                      {right, nil, func(net.Conn) {}},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := ""
			if test.raw != nil {
				raw, err := listenRaw(test.raw)
				if err != nil {
					t.Fatal(err)
				}
				defer raw.close()
				endpoint = raw.endpoint()
			} else {
				endpoint = test.peer.endpoint
			}
			link := newProxy(t, endpoint)
			s := newSubscriber(t, Config{Silence: 20 * time.Millisecond, Curve: test.curve})
			var in inbox
			subscribe(t, s, "tcp://"+link.l.Addr().String(), in.deliver)
			eventually(t, "fresh connections", func() bool {
				if test.peer != nil {
					test.peer.send(message(1))
				}
				return s.Stats().Reconnects >= 3 && (name != unknown || refused.Load() > 0)
			})
			e := s.Stats().Endpoints[0]
			if len(in.all()) > 0 || e.Messages > 0 || !e.LastMessage.IsZero() || e.Curve != (test.curve != nil) {
				t.Errorf("deliveries %+v, stats %+v", in.all(), e)
			}
			// One attempt for each fresh connection, and the few that libzmq makes
			// meanwhile.
			if n := link.connections(); n > 20*int(e.Reconnects+1) {
				t.Errorf("%d attempts for %d fresh connections", n, e.Reconnects)
			}
		})
	}
	// The publishers are none the worse for it.
	s := newSubscriber(t, Config{Curve: right})
	var in inbox
	subscribe(t, s, curve.endpoint, in.deliver)
	heardOver(t, curve, &in)
}

// Or their not being heard above would prove nothing.
func TestPeersOfEveryVersionAreHeardInPlainByLibzmq(t *testing.T) {
	for version, serve := range blurters() {
		t.Run(version, func(t *testing.T) {
			raw, err := listenRaw(serve)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.close()
			s := newSubscriber(t, Config{Libzmq: true})
			var in inbox
			subscribe(t, s, raw.endpoint(), in.deliver)
			eventually(t, "the peer", in.has(1))
			closeSubscriber(t, s) // before the peer, which waits for that
		})
	}
}

func TestPairThatDoesNotMatchIsRefused(t *testing.T) {
	needCurve(t)
	a, b := newKeys(t), newKeys(t)
	s, err := New(Config{Curve: &Curve{ServerKey: a.public, PublicKey: a.public, SecretKey: b.secret}})
	var ke *KeyError
	if !errors.As(err, &ke) || ke.Key != "PublicKey" {
		t.Errorf("New = %v, %v", s, err)
	}
}

func TestOwnPairIsMadeAndTheCallersConfigLeftAlone(t *testing.T) {
	needCurve(t)
	mine := &Curve{ServerKey: newKeys(t).public}
	s := newSubscriber(t, Config{Curve: mine})
	keys := s.config.Curve
	if mine.PublicKey != "" || mine.SecretKey != "" || checkKey("", "", keys.PublicKey) != nil || checkKey("", "", keys.SecretKey) != nil {
		t.Error("the pair is not where it should be")
	}
}

func TestWithoutCurveInLibzmqNewSaysSo(t *testing.T) {
	old := hasCurve
	defer func() { hasCurve = old }()
	hasCurve = func() bool { return false }
	if s, err := New(Config{Curve: &Curve{ServerKey: manualPublic}}); !errors.Is(err, ErrNoCurve) {
		t.Errorf("New = %v, %v, want ErrNoCurve", s, err)
	}
	newSubscriber(t, Config{}) // nobody has asked for it
}

func TestFruitlessConnectionsReconnectMoreSlowly(t *testing.T) {
	s := newSubscriber(t, Config{Libzmq: true})
	b := s.bus.(*zmqBus)
	for attempt, want := range []time.Duration{reconnectFirst, 2 * reconnectFirst, 4 * reconnectFirst} {
		soc, err := b.ctx.NewSocket(zmq.SUB)
		if err != nil {
			t.Fatal(err)
		}
		sub := &subscription{link: link{attempt: attempt}}
		err = b.configure(soc, sub)
		got, gerr := soc.GetReconnectIvl()
		if err := errors.Join(err, gerr, soc.Close()); err != nil || got != want {
			t.Errorf("attempt %d: %v, %v, want %v", attempt, got, err, want)
		}
	}
}
