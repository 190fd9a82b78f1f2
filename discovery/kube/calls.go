package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listTimeout is how long a list may take: as long as an API server gives itself by
// default. client-go would wait for ever for one that takes connections and says nothing.
const listTimeout = time.Minute

// calls is how an informer asks the API server. It sees what comes of each call:
// client-go tries a watch again and again without a word while connections are refused,
// which is what a restart of the API server looks like.
type calls struct{ cache.ListWatch }

func (s *Source) calls(selector string) *calls {
	client := s.Client.EndpointSlices(s.Namespace)
	return &calls{cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			limited, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list, err := client.List(limited, o)
			s.called(ctx, &s.stats.Lists, &s.listing, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			w, err := client.Watch(ctx, o)
			s.called(ctx, &s.stats.Watches, &s.watching, err)
			return w, err
		},
	}}
}

// IsWatchListSemanticsUnSupported has the informer list first and watch then. The list of
// a Service is short, and every API server can do that.
func (*calls) IsWatchListSemanticsUnSupported() bool { return true }

// called notes what came of a call.
func (s *Source) called(ctx context.Context, count *uint64, problem *string, err error) {
	if ctx.Err() != nil { // it was broken off by us
		return
	}
	s.note(func() {
		*count++
		*problem = ""
		if err != nil {
			s.stats.Failures++
			*problem = err.Error()
		}
	})
}
