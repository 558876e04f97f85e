package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers"
	"github.com/dmindex/dmindex/controllers/internal/charttest"
)

// overlay is what people write to install config/default from their registry, in their namespace,
// beside others.
const overlay = `
namespace: acme
namePrefix: acme-
resources: [%s/default]
images:
- {name: ghcr.io/dmindex/dmindex, newName: registry.acme.com/mirror/dmindex, digest: "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
`

const overlayImage = "registry.acme.com/mirror/dmindex@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// kustomized builds an overlay.
func kustomized(t *testing.T, text string) *charttest.Rendered {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Abs(filepath.Join("..", "..", "config"))
	if err == nil { // kustomize knows no absolute paths
		base, err = filepath.Rel(dir, base)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "%s", base)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kustomize(t, dir)
}

// kustomize builds the folder dir with the kustomize of kubectl.
func kustomize(t *testing.T, dir string) *charttest.Rendered {
	t.Helper()
	apiserver, _, err := assets()
	if err != nil {
		t.Fatal(err)
	}
	kubectl := filepath.Join(filepath.Dir(apiserver), "kubectl")
	if !executable(kubectl) {
		kubectl = "kubectl"
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).Output()
	if err != nil {
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			t.Fatalf("kubectl kustomize: %v\n%s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	objects, err := charttest.Parse(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return &charttest.Rendered{Objects: objects}
}

// TestOverlay installs an overlay with another image, namespace and prefix, and runs its operator
// with the arguments, the variables and the rights that the overlay gives it: servers run the image
// of the overlay, the operator watches its own namespace, and the admission policies know it.
func TestOverlay(t *testing.T) {
	config, c := ownServer(t)
	built := kustomized(t, overlay)
	for _, o := range built.Objects {
		namespaced(t, c, o)
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(built.Find("Deployment", "acme-dmindex").Object, deployment); err != nil {
		t.Fatal(err)
	}
	spec := deployment.Spec.Template.Spec
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "acme-dmindex-1", Namespace: "acme"}, Spec: spec}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	record := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dmindex-state-x", Namespace: "acme",
			Labels: map[string]string{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelComponent: dmv1.ComponentState}}}
	}
	try(t, "people may not make records", func() error {
		if err := c.Create(t.Context(), record(), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("%w", orNothing(err))
		}
		return nil
	})

	port := runOverlaid(t, config, pod)
	try(t, "the operator is ready", func() error {
		reply, err := http.Get("http://" + port + "/readyz")
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", reply.StatusCode)
		}
		return nil
	})
	demo := &unstructured.Unstructured{}
	demo.SetGroupVersionKind(dmv1.GroupVersion.WithKind(dmv1.KindIndex))
	demo.SetName("demo")
	demo.SetNamespace("acme")
	demo.Object["spec"] = map[string]any{
		"durability": "Memory", "key": map[string]any{"type": "Uint64"}, "value": map[string]any{"maxLength": int64(8)},
		"memoryPools":  []any{map[string]any{"name": "memory", "template": map[string]any{"servers": int64(1), "memory": "64Mi"}}},
		"computePools": []any{map[string]any{"name": "compute", "template": map[string]any{"replicas": int64(1), "minReplicas": int64(1), "maxReplicas": int64(2)}}},
	}
	created(t, c, demo)
	try(t, "a memory pod runs the image of the overlay", func() error {
		memory := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "demo-memory-0"}, memory); err != nil {
			return err
		}
		if got := memory.Spec.Containers[0].Image; got != overlayImage {
			t.Fatalf("a server runs %s, the operator %s", got, spec.Containers[0].Image)
		}
		return nil
	})
}

// TestOverlayEverywhere: the component for all namespaces keeps the policies to the account that is
// bound everywhere.
func TestOverlayEverywhere(t *testing.T) {
	t.Parallel()
	built := kustomized(t, overlay+"components: [%s/all-namespaces, %s/device-plugin]\n")
	bindings := 0
	for _, o := range built.Objects {
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" {
			continue
		}
		name, _, _ := unstructured.NestedString(o.Object, "spec", "paramRef", "name")
		of, _, _ := unstructured.NestedString(o.Object, "spec", "policyName")
		kind, _, _ := unstructured.NestedString(built.Find("ValidatingAdmissionPolicy", of).Object, "spec", "paramKind", "kind")
		if name == "" {
			continue
		}
		bindings++
		bound := built.Find(kind, name)
		if bound == nil {
			t.Errorf("%s asks for %s %s, which the overlay does not have", o.GetName(), kind, name)
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(bound.Object, "subjects")
		if got := subjects[0].(map[string]any); got["namespace"] != "acme" || built.Find("ServiceAccount", got["name"].(string)) == nil {
			t.Errorf("%s takes for the operator: %v", o.GetName(), got)
		}
	}
	if bindings != 5 {
		t.Errorf("%d policies know an account", bindings)
	}
	args, _, _ := unstructured.NestedSlice(built.Find("Deployment", "acme-dmindex").Object, "spec", "template", "spec", "containers")
	if text := fmt.Sprint(args); strings.Contains(text, "--namespace") {
		t.Errorf("the operator watches some namespaces: %s", text)
	}
}

// TestOverlayUserIDs: the component for clusters that give user ids says so to the operator, too.
func TestOverlayUserIDs(t *testing.T) {
	t.Parallel()
	o := kustomized(t, overlay+"components: [%s/cluster-user-ids]\n").Find("Deployment", "acme-dmindex")
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec", "securityContext")
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if spec["runAsUser"] != nil || spec["runAsNonRoot"] != true || !strings.Contains(fmt.Sprint(containers), "--cluster-user-ids") {
		t.Errorf("%v\n%v", spec, containers)
	}
}

// runOverlaid runs the operator of a pod as its account, and returns where it tells of its health.
func runOverlaid(t *testing.T, config *rest.Config, pod *corev1.Pod) (health string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	health = l.Addr().String()
	l.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, config, file, "system:serviceaccount:"+pod.Namespace+":"+pod.Spec.ServiceAccountName, "system:serviceaccounts", "system:authenticated")
	t.Setenv("KUBECONFIG", file)
	container := pod.Spec.Containers[0]
	var known []string
	for _, v := range container.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace}[v.ValueFrom.FieldRef.FieldPath]
		}
		t.Setenv(v.Name, value)
		known = append(known, "$("+v.Name+")", value)
	}
	expand := strings.NewReplacer(known...)
	var args []string
	for _, a := range container.Args[1:] {
		args = append(args, expand.Replace(a))
	}
	// the test needs no lead, and others use the ports
	args = append(args, "--leader-elect=false", "--metrics-addr=0", "--health-addr="+health)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- controllers.Main(ctx, args) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the operator: %v", err)
		}
	})
	return health
}

// writeKubeconfig writes a file by which a program reaches the API server as a user.
func writeKubeconfig(t *testing.T, config *rest.Config, file, user string, groups ...string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Impersonate: user, ImpersonateGroups: groups}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
}

// try does something until it succeeds.
func try(t *testing.T, what string, do func() error) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		err := do()
		if err == nil {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// orNothing is err, or says that there is none.
func orNothing(err error) error {
	if err == nil {
		return errors.New("it was done")
	}
	return err
}
