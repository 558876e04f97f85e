package statuspage

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// drawn is the page of p and its text, by the id of each table and paragraph that has one.
func drawn(t *testing.T, p *Page) (page string, texts map[string]string) {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	texts = map[string]string{}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == "script" {
			t.Errorf("there is a script: %v", n.FirstChild)
		}
		for _, a := range n.Attr {
			if a.Key == "id" {
				for inner := range n.Descendants() {
					if inner.Type == html.TextNode {
						texts[a.Val] += strings.TrimSpace(inner.Data) + " "
					}
				}
			}
		}
	}
	return b.String(), texts
}

func TestPage(t *testing.T) {
	p := &Page{
		Index: "ns/songs", Design: "dex", Version: "v1", Server: 2, Generation: 7, Now: time.Unix(0, 0),
		Servers: []Server{
			{ID: 1, Name: "pod-0", Trouble: "it cannot be reached"},
			{ID: 2, Name: "pod-1", Answered: true, Operations: 123456, HitRatio: 0.934, Reads: 0.25, Connections: 3, Total: 2000000, Forwarded: 1000000, CacheBytes: 64 << 20, Ranges: 2, Version: "v1"},
		},
		Ranges:   []Range{{Keys: `["", #ab)`, Owner: 1, Operations: -1, State: "Taking", Reason: "a lease"}},
		Commands: []Command{{"resp", "get", 1234567, 8, 0}},
		Slow:     []Slow{{time.Unix(3600, 0), 12300 * time.Microsecond, "set", 16}},
	}
	_, texts := drawn(t, p)
	for id, wants := range map[string][]string{
		"ready":    {"This server is ready."},
		"servers":  {"1 pod-0 it cannot be reached", "2 pod-1 123k 93.4 % 0.25 3 2,000,000 50.0 % 0 64.0 MiB 2 v1 serves"},
		"ranges":   {`["", #ab) 1 - Taking: a lease`},
		"commands": {"resp get 1,234,567 8 0"},
		"slow":     {"01:00:00 12.3 ms set 16"},
	} {
		for _, want := range wants {
			if !strings.Contains(texts[id], want) {
				t.Errorf("%s: %q is not in %q", id, want, texts[id])
			}
		}
	}
	p.Trouble = "the index is not open"
	if _, texts := drawn(t, p); !strings.Contains(texts["trouble"], p.Trouble) || texts["ready"] != "" {
		t.Errorf("a server that is not ready: %q", texts)
	}
}

// TestHostileTexts: what servers and maps say is shown as text, whatever it is.
func TestHostileTexts(t *testing.T) {
	bad := `<script>x()</script>"><img src=x onerror=y()>`
	page, texts := drawn(t, &Page{
		Index: bad, Design: bad, Version: bad, Trouble: bad,
		Servers:  []Server{{Name: bad, Trouble: bad, Version: bad}},
		Ranges:   []Range{{Keys: bad, State: bad, Reason: bad}},
		Commands: []Command{{FrontEnd: bad, Name: bad}},
	})
	if strings.Contains(page, "<img") {
		t.Errorf("an element of a text is one of the page:\n%s", page)
	}
	if n := strings.Count(texts["servers"]+texts["ranges"]+texts["commands"], bad); n != 7 {
		t.Errorf("%d of 7 texts are shown as they are", n)
	}
}

func TestBounds(t *testing.T) {
	p := &Page{Servers: make([]Server, MaxServers+3), Ranges: make([]Range, MaxRanges+5), Commands: make([]Command, MaxCommands+1), Slow: make([]Slow, MaxSlow+1)}
	page, _ := drawn(t, p)
	if rows := strings.Count(page, "<tr>"); rows != 4+MaxServers+MaxRanges+MaxCommands+MaxSlow {
		t.Errorf("%d rows", rows)
	}
	if !strings.Contains(page, "and 3 more servers") || !strings.Contains(page, "and 5 more ranges") {
		t.Error("the page does not say what it leaves out")
	}
	var h History
	for i := range Kept + 2 {
		h.Add(Sample{Operations: float64(i)})
	}
	if s := h.Samples(); len(s) != Kept || s[0].Operations != 2 || s[Kept-1].Operations != Kept+1 {
		t.Errorf("%d samples from %v on", len(s), s[0].Operations)
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{1}, "M360.0 45.0h0"},
		{[]float64{0, 2}, "M359.0 90.0h0L360.0 0.0"},
		{[]float64{2, -1, 1}, "M358.0 0.0h0M360.0 45.0h0"},
	} {
		if got := path(c.values, 2); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
	full := make([]float64, Kept)
	if got := path(full, 1); !strings.HasPrefix(got, "M0.0 90.0") {
		t.Errorf("an hour begins at %s", got[:20])
	}
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"1.23M": rate(1234567), "12.3k": rate(12345), "17": rate(17.2), "0.5": rate(0.5), "0": rate(0), "-": rate(-1),
		"1,234,567": count(1234567), "12": count(12), "123": count(123), "99.9 %": share(0.9991), "2.0 MiB": bytesOf(2 << 20),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
