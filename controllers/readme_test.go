package controllers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/controllers/internal/charttest"
)

var setPattern = regexp.MustCompile(`--set (?:'([^']*)'|(\S+))`)

// TestInstallOfTheManual: who installs as the first pages say, word for word, has an operator that
// watches the namespace into which the same page applies its sample.
func TestInstallOfTheManual(t *testing.T) {
	for _, page := range []string{"README.md", "docs/kubernetes.md"} {
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "helm install dmindex charts/dmindex ")
		command, rest, _ := strings.Cut(after, "\n")
		if !found || !strings.Contains(rest, "kubectl apply -f config/samples/dmindex_demo.yaml") {
			t.Errorf("%s does not say how to install and to make an index", page)
			continue
		}
		values := map[string]any{}
		for _, m := range setPattern.FindAllStringSubmatch(command, -1) {
			if err := strvals.ParseInto(m[1]+m[2], values); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
		}
		given, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		d := decode[appsv1.Deployment](t, chart(t, string(given), charttest.Options{}).Find("Deployment", "dmindex"))
		// kubectl apply without a namespace
		if args := d.Spec.Template.Spec.Containers[0].Args; !strings.Contains(strings.Join(args, " ")+" ", "--namespace=default ") {
			t.Errorf("%s: the operator that it installs does not look at the sample in namespace default: %v", page, args)
		}
	}
}
