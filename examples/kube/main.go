// Kube tells which engines a Kubernetes Service has, as discovery/kube sees them.
//
//	go run . -namespace inference -service engines -port http
//
// prints the list, and again each time it changes, until it is interrupted; -once prints
// it once. It takes the service account of the pod that it runs in, or else a kubeconfig
// (-kubeconfig, $KUBECONFIG, ~/.kube/config).
//
// With -write it keeps a file up to date, for a gateway that reads its list from there
// (discovery.File, and the -workers-file of examples/gateway) and need not know of
// Kubernetes. The folder manifests has that, to copy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/discovery/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings are what the flags say.
type settings struct {
	source     *kube.Source
	kubeconfig string
	write      string
	once       bool
}

func newFlags(s *settings) *flag.FlagSet {
	f := flag.NewFlagSet("kube", flag.ContinueOnError)
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` that says how to reach the cluster")
	f.StringVar(&s.source.Namespace, "namespace", "default", "`namespace` of the Service")
	f.StringVar(&s.source.Service, "service", "", "`name` of the Service")
	f.StringVar(&s.source.Selector, "selector", "", "`labels` of Services, instead of a name or besides")
	f.StringVar(&s.source.Port, "port", "", "`name` or number of the engines' port; without, the only one")
	f.BoolVar(&s.source.NotReady, "not-ready", false, "count endpoints that are not ready")
	f.StringVar(&s.write, "write", "", "`file` to keep the list in")
	f.BoolVar(&s.once, "once", false, "end with the first list")
	return f
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s := settings{source: &kube.Source{Logger: slog.Default()}}
	f := newFlags(&s)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag", f.Arg(0))
	}
	client, err := newClient(s.kubeconfig)
	if err != nil {
		return err
	}
	s.source.Client = client
	return follow(ctx, s, out)
}

// newClient returns one of a kubeconfig, if there is any, or of the pod.
func newClient(kubeconfig string) (typed.EndpointSlicesGetter, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	return typed.NewForConfig(config)
}

// follow tells of each list until ctx ends.
func follow(ctx context.Context, s settings, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := errors.New("the one list was told")
	err := s.source.Run(ctx, func(set []discovery.Worker) {
		err := tell(s, out, set)
		if err == nil && s.once {
			err = enough
		}
		if err != nil {
			cancel(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil { // Run only says that it has ended
		err = cause
	}
	if errors.Is(err, enough) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// entry is a worker as a discovery.File reads it.
type entry struct {
	ID  string `json:"id,omitempty"`
	URL string `json:"url"`
}

func tell(s settings, out io.Writer, set []discovery.Worker) error {
	list := make([]entry, len(set)) // never null: [] says that there are none
	for i, w := range set {
		list[i] = entry{w.ID, w.URL}
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if s.write != "" {
		return replace(s.write, text)
	}
	_, err = out.Write(text)
	return err
}

// replace writes a file in such a way that no reader sees half of it.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".engines-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // in vain, if all went well
	_, err = f.Write(content)
	// The gateway's container may run as somebody else.
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
