//go:build languages

package clients

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
)

// browserLimit is for one index: the page, at each size and in each colour, and drawn anew.
const browserLimit = 2 * time.Minute

// fits reports what does not fit into the window: the page itself, or a curve without a size. What
// is wider than it and lies in a part that scrolls does fit.
const fits = `(() => {
	const wrong = [], root = document.documentElement
	if (root.scrollWidth > root.clientWidth) wrong.push('the page has ' + root.scrollWidth + ' of ' + root.clientWidth + ' pixels')
	const curves = document.querySelectorAll('.curves svg')
	if (curves.length != 4) wrong.push(curves.length + ' curves')
	for (const c of curves) {
		const r = c.getBoundingClientRect()
		if (r.width < 200 || r.height < 20) wrong.push('a curve has ' + r.width + ' by ' + r.height + ' pixels')
	}
	return wrong.join('; ')
})()`

// readable reports each text whose contrast to the ground is below what WCAG 2.2 asks (1.4.3: 4.5).
const readable = `(() => {
	const light = colour => {
		const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const ground = light(getComputedStyle(document.body).backgroundColor), wrong = []
	for (const e of document.querySelectorAll('h1,h2,p,th,td,small,a,figcaption')) {
		const text = light(getComputedStyle(e).color)
		const contrast = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05)
		if (contrast < 4.5) wrong.push(e.tagName + ': ' + contrast.toFixed(2))
	}
	return [...new Set(wrong)].join('; ')
})()`

// TestPageInABrowser looks at the status page in Chromium, as a person would: on a telephone and on
// a screen, in light and dark colours, and until it is drawn anew.
func TestPageInABrowser(t *testing.T) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("/usr/bin/chromium"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	eachIndex(t, func(t *testing.T, ctx context.Context, addresses []string, address string) {
		const key = "a-key-that-nobody-may-see"
		client := redis.NewClient(&redis.Options{Addr: addresses[0]})
		defer client.Close()
		done(t, "SET", client.Set(ctx, key, "v", 0).Err())

		ctx, stop := context.WithTimeout(t.Context(), browserLimit)
		defer stop()
		ctx, closeBrowser := chromedp.NewExecAllocator(ctx, options...)
		defer closeBrowser()
		var said complaints
		ctx, closeTab := chromedp.NewContext(ctx, chromedp.WithListener(said.listen))
		defer closeTab()

		done(t, "page", chromedp.Do(ctx, chromedp.Navigate(address)))
		is(t, "ready", "This server is ready.")(see(ctx, chromedp.Text("#ready")))
		is(t, "servers that serve", len(addresses))(see(ctx, chromedp.Evaluate[int](`[...document.querySelectorAll('#servers td.reason')].filter(e => e.innerText == 'serves').length`)))
		is(t, "keys on the page", false)(see(ctx, chromedp.Evaluate[bool](`document.documentElement.outerHTML.includes('`+key+`')`)))

		for _, width := range []int64{360, 800, 1280} {
			for _, colours := range []string{"light", "dark"} {
				media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}}
				if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
					t.Fatal(err)
				}
				done(t, "another window", chromedp.Do(ctx, chromedp.EmulateViewport(width, 800)))
				is(t, fmt.Sprintf("what does not fit into %d pixels, %s", width, colours), "")(see(ctx, chromedp.Evaluate[string](fits)))
				is(t, fmt.Sprintf("what cannot be read at %d pixels, %s", width, colours), "")(see(ctx, chromedp.Evaluate[string](readable)))
			}
		}

		loaded := chromedp.WaitEvent(page.LoadEventFired, func(page.EventLoadEventFired) bool { return true }, chromedp.Title())
		_, err := chromedp.Run(ctx, loaded)
		done(t, "the page comes anew by itself", err)
		is(t, "ready then", "This server is ready.")(see(ctx, chromedp.Text("#ready")))
		is(t, "complaints of the browser", "")(said.text(), nil)
	})
}

// see is what an action returns.
func see[T any](ctx context.Context, a chromedp.Action[T]) (any, error) { return chromedp.Run(ctx, a) }

// complaints are what a browser says of a page: errors, and what the page's own policy refuses.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) listen(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		c.said = append(c.said, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		c.said = append(c.said, e.ExceptionDetails.Text)
	}
}

func (c *complaints) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.said, "; ")
}
