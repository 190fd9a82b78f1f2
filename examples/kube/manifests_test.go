package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-go/plimsoll/discovery/kube"
)

// manifests are all objects in the folder, by kind and name.
type manifests map[string]runtime.Object

// readManifests reads them as an API server does that refuses what it does not know.
func readManifests(t *testing.T) manifests {
	t.Helper()
	files, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	all := make(manifests)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, document := range bytes.Split(content, []byte("\n---\n")) {
			var typed metav1.TypeMeta
			if err := yaml.Unmarshal(document, &typed); err != nil {
				t.Fatalf("%s, document %d: %v", file, i, err)
			}
			object, err := scheme.Scheme.New(typed.GroupVersionKind())
			if err != nil {
				t.Fatalf("%s, document %d: %v", file, i, err)
			}
			if err := yaml.UnmarshalStrict(document, object); err != nil {
				t.Fatalf("%s, %s: %v", file, typed.Kind, err)
			}
			meta := object.(metav1.Object)
			if meta.GetNamespace() != "inference" {
				t.Errorf("%s %s is in namespace %q", typed.Kind, meta.GetName(), meta.GetNamespace())
			}
			key := typed.Kind + " " + meta.GetName()
			if all[key] != nil {
				t.Errorf("there are two of %s", key)
			}
			all[key] = object
		}
	}
	return all
}

// get returns one object.
func get[T runtime.Object](t *testing.T, all manifests, name string) T {
	t.Helper()
	kind := reflect.TypeFor[T]().Elem().Name()
	object, ok := all[kind+" "+name].(T)
	if !ok {
		t.Fatalf("there is no %s %s among %v", kind, name, slices.Sorted(maps.Keys(all)))
	}
	return object
}

// args returns the flags of a container.
func args(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	flags := make(map[string]string)
	for _, arg := range c.Args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !ok || !strings.HasPrefix(arg, "-") {
			t.Errorf("container %s: %q is not -flag=value", c.Name, arg)
		}
		flags[name] = value
	}
	return flags
}

func portsOf(c corev1.Container) map[string]int32 {
	ports := make(map[string]int32)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	return ports
}

// number returns the port that is meant, by name or number.
func number(t *testing.T, p intstr.IntOrString, ports map[string]int32) int32 {
	t.Helper()
	if p.Type == intstr.Int {
		return p.IntVal
	}
	n, ok := ports[p.StrVal]
	if !ok {
		t.Errorf("no container has a port %q", p.StrVal)
	}
	return n
}

func TestWhatSelectsPodsSelectsThem(t *testing.T) {
	all := readManifests(t)
	for _, name := range []string{"engine", "gateway"} {
		d := get[*appsv1.Deployment](t, all, name)
		pods := d.Spec.Template.Labels
		selectors := map[string]map[string]string{
			"Deployment":          d.Spec.Selector.MatchLabels,
			"PodDisruptionBudget": get[*policyv1.PodDisruptionBudget](t, all, name).Spec.Selector.MatchLabels,
			"NetworkPolicy":       get[*networkingv1.NetworkPolicy](t, all, name).Spec.PodSelector.MatchLabels,
		}
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selectors["topologySpreadConstraints"] = spread.LabelSelector.MatchLabels
		}
		for of, selector := range selectors {
			if !maps.Equal(selector, pods) {
				t.Errorf("%s of %s selects %v, and the pods are %v", of, name, selector, pods)
			}
		}
	}
	for name, of := range map[string]string{"engines": "engine", "gateway": "gateway", "gateway-replicas": "gateway"} {
		service := get[*corev1.Service](t, all, name)
		d := get[*appsv1.Deployment](t, all, of)
		if !maps.Equal(service.Spec.Selector, d.Spec.Template.Labels) {
			t.Errorf("Service %s selects %v", name, service.Spec.Selector)
		}
		ports := portsOf(d.Spec.Template.Spec.Containers[0])
		for _, p := range service.Spec.Ports {
			// A headless Service does not translate: the two have to be the same.
			if target := number(t, p.TargetPort, ports); service.Spec.ClusterIP == corev1.ClusterIPNone && p.Port != target {
				t.Errorf("Service %s: port %d leads to %d", name, p.Port, target)
			}
		}
		if headless := service.Spec.ClusterIP == corev1.ClusterIPNone; headless != (name != "gateway") {
			t.Errorf("Service %s: clusterIP is %q", name, service.Spec.ClusterIP)
		}
		if service.Spec.PublishNotReadyAddresses {
			t.Errorf("Service %s lists what is not ready", name)
		}
	}
	for key, object := range all {
		if p, ok := object.(*networkingv1.NetworkPolicy); ok {
			ports := portsOf(get[*appsv1.Deployment](t, all, p.Name).Spec.Template.Spec.Containers[0])
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					number(t, *port.Port, ports)
				}
			}
			if len(p.Spec.Ingress) == 0 {
				t.Errorf("%s lets nothing in", key)
			}
		}
	}
}

func TestLoadSocketsAreReachable(t *testing.T) {
	all := readManifests(t)
	engine := get[*appsv1.Deployment](t, all, "engine").Spec.Template.Spec.Containers[0]
	flags, ports := args(t, engine), portsOf(engine)

	var events struct{ Publisher, Endpoint string }
	if err := json.Unmarshal([]byte(flags["kv-events-config"]), &events); err != nil {
		t.Fatal(err)
	}
	kv, err := strconv.Atoi(events.Endpoint[strings.LastIndexByte(events.Endpoint, ':')+1:])
	if err != nil || events.Publisher != "zmq" || flags["load-publish-endpoint"] != "auto" {
		t.Fatalf("the engine publishes nothing: %v", flags)
	}
	ranks, err := strconv.Atoi(flags["dp-size"])
	if err != nil || ranks < 1 {
		t.Fatalf("dp-size is %q", flags["dp-size"])
	}
	if flags["host"] != "0.0.0.0" || fmt.Sprint(ports["http"]) != flags["port"] {
		t.Errorf("it serves on %s:%s, and its port is %d", flags["host"], flags["port"], ports["http"])
	}

	service := get[*corev1.Service](t, all, "engines")
	rule := get[*networkingv1.NetworkPolicy](t, all, "engine").Spec.Ingress[0]
	gateway := get[*appsv1.Deployment](t, all, "gateway").Spec.Template.Labels
	if len(rule.From) != 1 || !maps.Equal(rule.From[0].PodSelector.MatchLabels, gateway) {
		t.Errorf("the policy lets in %v", rule.From)
	}
	reachable := func(want int32) {
		t.Helper()
		in := slices.ContainsFunc(engine.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == want })
		listed := slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == want })
		let := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return number(t, *p.Port, ports) == want })
		if !in || !listed || !let {
			t.Errorf("port %d: of the container %t, of the Service %t, in the policy %t", want, in, listed, let)
		}
	}
	reachable(ports["http"])
	for rank := range ranks {
		reachable(int32(kv + ranks + rank))
	}
}

func TestGatewayFindsWhatItIsTold(t *testing.T) {
	all := readManifests(t)
	pod := get[*appsv1.Deployment](t, all, "gateway").Spec.Template.Spec
	gateway, sidecar := pod.Containers[0], pod.InitContainers[0]
	flags, ports := args(t, gateway), portsOf(gateway)

	known := gatewayFlags(t)
	for name := range flags {
		if !known[name] {
			t.Errorf("the gateway has no flag -%s", name)
		}
	}
	for name, want := range map[string]string{
		"listen":    fmt.Sprint(":", ports["http"]),
		"admin":     fmt.Sprint(":", ports["admin"]),
		"self":      "$(POD_IP)",
		"peers-dns": fmt.Sprint("gateway-replicas.$(POD_NAMESPACE).svc:", ports["http"]),
	} {
		if flags[name] != want {
			t.Errorf("-%s is %q, want %q", name, flags[name], want)
		}
	}
	for _, probe := range []*corev1.Probe{gateway.LivenessProbe, gateway.ReadinessProbe} {
		number(t, probe.HTTPGet.Port, ports)
	}
	if gateway.LivenessProbe.HTTPGet.Path != "/healthz" || gateway.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes ask for something else than /healthz and /readyz")
	}

	var s settings
	s.source = new(kube.Source)
	if err := quiet(newFlags(&s)).Parse(sidecar.Args); err != nil {
		t.Fatal(err)
	}
	if s.write != flags["workers-file"] {
		t.Errorf("%s is written, and %s read", s.write, flags["workers-file"])
	}
	service := get[*corev1.Service](t, all, s.source.Service)
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == s.source.Port }) {
		t.Errorf("Service %s has no port %q", service.Name, s.source.Port)
	}
	for _, c := range []corev1.Container{gateway, sidecar} {
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(s.write) })
		if at < 0 || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == c.VolumeMounts[at].Name }) {
			t.Errorf("container %s has no volume at %s", c.Name, filepath.Dir(s.write))
		}
		for _, arg := range c.Args {
			for _, part := range strings.Split(arg, "$(")[1:] {
				name, _, _ := strings.Cut(part, ")")
				if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
					t.Errorf("container %s: nothing says what %s is", c.Name, name)
				}
			}
		}
	}
	if sidecar.RestartPolicy == nil || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Error("the gateway would wait for its sidecar to end")
	}
}

func quiet(f *flag.FlagSet) *flag.FlagSet {
	f.SetOutput(io.Discard)
	return f
}

// gatewayFlags are the names in the source of the example gateway.
func gatewayFlags(t *testing.T) map[string]bool {
	t.Helper()
	const file = "../gateway/flags.go"
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, arg := range call.Args {
			if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
				name, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				names[name] = true // texts of help, too, which nobody takes for a name
				break
			}
		}
		return true
	})
	if !names["listen"] || !names["workers"] {
		t.Fatalf("flags are %v", names)
	}
	return names
}

func TestDrainingFitsIntoTheGracePeriods(t *testing.T) {
	all := readManifests(t)
	pod := get[*appsv1.Deployment](t, all, "gateway").Spec.Template.Spec
	flags := args(t, pod.Containers[0])
	duration := func(name string) time.Duration {
		d, err := time.ParseDuration(flags[name])
		if err != nil || d <= 0 {
			t.Errorf("-%s is %q: %v", name, flags[name], err)
		}
		return d
	}
	delay, timeout := duration("drain-delay"), duration("drain-timeout")
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if delay+timeout+10*time.Second > grace {
		t.Errorf("draining takes %v and %v, of a grace period of %v", delay, timeout, grace)
	}
	ready := pod.Containers[0].ReadinessProbe
	if noticed := time.Duration(ready.PeriodSeconds*ready.FailureThreshold+ready.TimeoutSeconds) * time.Second; noticed >= delay {
		t.Errorf("that it drains is noticed within %v, and the door is closed after %v", noticed, delay)
	}

	pod = get[*appsv1.Deployment](t, all, "engine").Spec.Template.Spec
	sleep := pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds
	if sleep < 5 || sleep+60 > *pod.TerminationGracePeriodSeconds {
		t.Errorf("engines have %d s before they are told and %d s in all", sleep, *pod.TerminationGracePeriodSeconds)
	}
	if pod.Containers[0].LivenessProbe != nil {
		t.Error("an engine that is only busy would be killed")
	}
}

func TestPermissionsAreThoseThatAreNeeded(t *testing.T) {
	all := readManifests(t)
	pod := get[*appsv1.Deployment](t, all, "gateway").Spec.Template.Spec
	account := get[*corev1.ServiceAccount](t, all, pod.ServiceAccountName)
	binding := get[*rbacv1.RoleBinding](t, all, "gateway-reads-endpointslices")
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	if !slices.Equal(binding.Subjects, want) {
		t.Errorf("subjects are %v, want %v", binding.Subjects, want)
	}
	role := get[*rbacv1.Role](t, all, binding.RoleRef.Name)
	if binding.RoleRef.Kind != "Role" || binding.RoleRef.APIGroup != rbacv1.GroupName {
		t.Errorf("the binding is to %v", binding.RoleRef)
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}}
	if !reflect.DeepEqual(role.Rules, []rbacv1.PolicyRule{rule}) {
		t.Errorf("rules are %v", role.Rules)
	}
	// As the restricted Pod Security Standard, which many namespaces enforce, wants it.
	security := pod.SecurityContext
	if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot ||
		security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the gateway's pod may run as root: %v", security)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("container %s may do more than it needs to: %v", c.Name, s)
		}
	}
	engine := get[*appsv1.Deployment](t, all, "engine").Spec.Template.Spec
	if engine.AutomountServiceAccountToken == nil || *engine.AutomountServiceAccountToken {
		t.Error("engines get a token that they have no use for")
	}
}
