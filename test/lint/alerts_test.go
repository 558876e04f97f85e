package lint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rules is a file of alerts.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr string
			Labels      map[string]string
		}
	}
}

func readYAML(t *testing.T, file string, into any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return string(text)
}

func readAlerts(t *testing.T) (names []string, text string) {
	var r rules
	text = readYAML(t, "charts/dmindex/files/alerts.yaml", &r)
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			names = append(names, rule.Alert)
			if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has severity %q", rule.Alert, s)
			}
		}
	}
	return names, text
}

// TestRunbooks: each alert has a page with its three parts and a row in the list, and each page is
// of an alert.
func TestRunbooks(t *testing.T) {
	names, _ := readAlerts(t)
	list, err := os.ReadFile("../../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		page, err := os.ReadFile("../../docs/runbooks/" + name + ".md")
		if err != nil {
			t.Errorf("alert %s has no runbook: %v", name, err)
			continue
		}
		for _, part := range []string{"# " + name + ": ", "\n## What it means\n", "\n## How to see\n", "\n## What to do\n"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the runbook of %s lacks %q", name, part)
			}
		}
		if !strings.Contains(string(list), "| ["+name+"]("+name+".md) | ") {
			t.Errorf("docs/runbooks/README.md does not name %s", name)
		}
	}
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); name != "README" && !slices.Contains(names, name) {
			t.Errorf("runbook %s is of no alert", name)
		}
	}
}

// TestSymptomsLeadToRunbooks: docs/troubleshooting.md leads to each runbook, and names each reason
// upon which there is something to do.
func TestSymptomsLeadToRunbooks(t *testing.T) {
	symptoms, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := readAlerts(t)
	for _, name := range names {
		if !strings.Contains(string(symptoms), "](runbooks/"+name+".md)") {
			t.Errorf("docs/troubleshooting.md does not lead to the runbook of %s: add what its reader sees", name)
		}
	}
	reference, err := os.ReadFile("../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, reasons, _ := strings.Cut(string(reference), "\n## Reasons\n")
	checked := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(reasons, -1) {
		if name, do := row[1], row[2]; !strings.HasPrefix(do, "nothing") {
			checked++
			if !strings.Contains(string(symptoms), "`"+name+"`") {
				t.Errorf("docs/troubleshooting.md does not name the reason %s, upon which there is something to do: %s", name, do)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d reasons", checked)
	}
}

// TestAlertsAreTested: promtool has series with which each alert fires, and such with which it does
// not.
func TestAlertsAreTested(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	readYAML(t, "test/alerts/alerts_test.yaml", &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, rule := range test.AlertRuleTest {
			if len(rule.ExpAlerts) > 0 {
				fires[rule.Alertname] = true
			} else {
				silent[rule.Alertname] = true
			}
		}
	}
	names, _ := readAlerts(t)
	for _, name := range names {
		if !fires[name] || !silent[name] {
			t.Errorf("test/alerts does not test that %s fires (%v) and that it does not (%v)", name, fires[name], silent[name])
		}
	}
}

var metricName = regexp.MustCompile(`\bdmindex_[a-z_]+[a-z]\b`)

// TestMonitoredMetrics: alerts, dashboard and runbooks name metrics that a server shows.
func TestMonitoredMetrics(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alerts := readAlerts(t)
	texts := map[string]string{"charts/dmindex/files/alerts.yaml": alerts}
	var dashboard any
	texts["charts/dmindex/files/dashboard.json"] = readYAML(t, "charts/dmindex/files/dashboard.json", &dashboard)
	if !json.Valid([]byte(texts["charts/dmindex/files/dashboard.json"])) {
		t.Error("the dashboard is no JSON")
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page.path, "docs/runbooks/") {
			texts[page.path] = page.text
		}
	}
	if len(texts) < 10 {
		t.Errorf("only %d files were checked", len(texts))
	}
	for file, text := range texts {
		for _, name := range metricName.FindAllString(text, -1) {
			name = strings.TrimSuffix(name, "_bucket") // of a histogram
			if !strings.Contains(string(reference), "| `"+name+"` |") {
				t.Errorf("%s names %s, which docs/reference/metrics.md does not have", file, name)
			}
		}
	}
}
