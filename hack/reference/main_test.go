package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPages: every field of a spec has a meaning, every type that is named has a section, and every
// reason says when.
func TestPages(t *testing.T) {
	a, err := read("../../api/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	var fields, conditions bytes.Buffer
	a.fields(&fields)
	a.conditions(&conditions)
	sections := 0
	for line := range strings.Lines(fields.String()) {
		if _, link, found := strings.Cut(line, "](#"); found {
			name, _, _ := strings.Cut(link, ")")
			if !strings.Contains(strings.ToLower(fields.String()), "\n## "+name+"\n") {
				t.Errorf("no section for %s: %s", name, line)
			}
		}
		if strings.HasPrefix(line, "## ") {
			sections++
		}
		if strings.HasSuffix(line, "|  |\n") && !strings.Contains(line, "`metadata`") && !strings.Contains(line, "`status`") {
			t.Errorf("a field without a meaning: %s", line)
		}
	}
	if !strings.Contains(fields.String(), "Default: `8Mi`.") || strings.Contains(fields.String(), "Default: `{}`") {
		t.Error("defaults of fields are not shown")
	}
	if sections < 15 {
		t.Errorf("%d sections", sections)
	}
	rows := 0
	for line := range strings.Lines(conditions.String()) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if rows++; len(cells) != 3 || len(cells[1]) < 10 {
			t.Errorf("a condition or reason that does not say when: %s", line)
		}
		if strings.Contains(cells[1], "Do: ") {
			t.Errorf("what to do begins with \"To do:\": %s", line)
		}
	}
	if rows < 30 {
		t.Errorf("%d conditions and reasons", rows)
	}
}

// TestMetrics: every way in which a server describes a metric is understood, and none is met twice.
func TestMetrics(t *testing.T) {
	for _, s := range servers {
		met := map[string]bool{}
		for _, file := range s.files {
			all, err := metricsOf("../../" + file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				if met[m.name] || !strings.HasPrefix(m.name, "dmindex_") || !strings.HasSuffix(m.help, ".") {
					t.Errorf("%s: %+v", file, m)
				}
				met[m.name] = true
			}
			source, err := os.ReadFile("../../" + file)
			if err != nil {
				t.Fatal(err)
			}
			// Each help is a sentence between quotes.
			if helps := strings.Count(string(source), `."`); helps != len(all) {
				t.Errorf("%s has %d sentences and %d metrics", file, helps, len(all))
			}
		}
	}
}
