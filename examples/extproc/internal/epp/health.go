package epp

import (
	"context"
	"sync/atomic"

	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-go/plimsoll/load"
)

// health answers each check by what there is now. A picker without engines is alive, and
// not ready; nor is one that is about to end.
type health struct {
	healthpb.UnimplementedHealthServer // Watch: neither Envoy nor Kubernetes calls it

	table    *load.Table
	draining atomic.Bool
}

// Check implements the health service for the names that the protocol wants.
func (h *health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	switch r.Service {
	case "liveness":
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	case "", "readiness", proc.ExternalProcessor_ServiceDesc.ServiceName:
		if h.draining.Load() || h.table.View().Healthy() == 0 {
			return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
		}
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}
	return nil, status.Errorf(codes.NotFound, "no service %q", r.Service)
}
