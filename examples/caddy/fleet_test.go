package plimsoll

import (
	"net"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// What reloads leave behind must not grow, nor be shown for what is at work.
func TestReloadsForgetPoliciesThatNobodyUses(t *testing.T) {
	_, urls, ids := engines(t, 1)
	p := start(t, site(urls, "least_work", ""))
	known(t, ids)
	f := theFleet(t)
	for _, policy := range []string{"random", "round_robin", "least_depth", "power_of_two", "least_work"} {
		if err := p.load(site(urls, policy, "")); err != nil {
			t.Fatal(err)
		}
		if name := f.policy().Name(); name != policy || len(f.uses) != 1 {
			t.Errorf("policy %s of %d, want %s alone", name, len(f.uses), policy)
		}
	}
}

func TestPolicyGoesOnLearningWhenItsConfigurationIsIndentedAnew(t *testing.T) {
	f := newFleet("test")
	defer f.page.Close()
	first, err := f.use("least_depth", []byte(`{"ties":"rotate"}`))
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.use("least_depth", []byte("{\n  \"ties\": \"rotate\"\n}"))
	if err != nil {
		t.Fatal(err)
	}
	if again != first {
		t.Error("it is another one")
	}
	f.drop(first)
	if len(f.uses) != 1 {
		t.Error("what is in use was forgotten")
	}
	f.drop(again)
	if len(f.uses) != 0 {
		t.Error("what nobody uses was not forgotten")
	}
}

// Its files are closed.
func TestNothingIsLoggedByARefusedConfiguration(t *testing.T) {
	list, urls, ids := engines(t, 2)
	start(t, site(urls, "least_work", ""))
	known(t, ids)
	f := theFleet(t)
	before := f.log.newest.Load()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config, err := adapt("http://" + taken.Addr().String() + " {\n" + site(list[0].URL(), "least_work", "") + "\n}")
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err == nil {
		t.Fatal("accepted")
	}
	if *f.log.newest.Load() != *before {
		t.Error("the fleet logs by a configuration that was refused")
	}
}
