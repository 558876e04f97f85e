package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
	"github.com/dmindex/dmindex/examples/shop/stock"
)

// shop is the example's index and program.
func shop(t *testing.T) (stock.Store, *httptest.Server) {
	i := newIndex(t, func(c *local.Config) { c.Design, c.Routing, c.AtomicPrefix = "dex", config.RoutingOwner, "}" })
	s := stock.New(i.client())
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return s, server
}

// TestExampleShop: the program of examples/shop sells what there is, once, and says what is wrong.
func TestExampleShop(t *testing.T) {
	s, server := shop(t)
	f := func(method, path string, status int, want string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status || !strings.Contains(string(body), want) {
			t.Errorf("%s %s: %s %q, %v; want %d and %q", method, path, response.Status, body, err, status, want)
		}
	}
	f("GET", "/readyz", 200, "ready")
	f("GET", "/shops/berlin/stock", 200, "[]")
	f("POST", "/shops/berlin/stock/pear?add=2", 200, "2")
	f("POST", "/shops/berlin/stock/apple?add=5", 200, "5")
	f("POST", "/shops/oslo/stock/plum?add=1", 200, "1")
	f("GET", "/shops/berlin/stock", 200, `[{"Name":"apple","Count":5},{"Name":"pear","Count":2}]`)
	f("GET", "/shops/berlin/stock?after=apple", 200, `[{"Name":"pear","Count":2}]`)
	f("PUT", "/shops/berlin/orders/a1?item=pear&count=2", 200, "sold")
	f("PUT", "/shops/berlin/orders/a1?item=pear&count=2", 200, "sold") // the same order again
	f("PUT", "/shops/berlin/orders/a1?item=apple&count=1", 409, "another order")
	f("PUT", "/shops/berlin/orders/a2?item=pear&count=1", 409, "shop berlin, which has 0")
	f("GET", "/shops/berlin/stock", 200, `[{"Name":"apple","Count":5},{"Name":"pear","Count":0}]`)
	f("PUT", "/shops/berlin/orders/a3?item=pear&count=0", 400, "write 1 to 1000000")
	f("PUT", "/shops/berlin/orders/a3?item=&count=1", 400, "is no name")
	f("POST", "/shops/Berlin/stock/pear?add=1", 400, "is no name")

	// Many buyers of one shop: each piece is sold once.
	if _, err := s.Deliver(t.Context(), "paris", "fig", 10); err != nil {
		t.Fatal(err)
	}
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for b := range 4 {
		buyers.Go(func() {
			for n := range 4 {
				switch err := s.Order(t.Context(), "paris", fmt.Sprintf("o-%d-%d", b, n), "fig", 1); {
				case err == nil:
					sold.Add(1)
				case !errors.Is(err, stock.ErrSoldOut):
					t.Error(err)
				}
			}
		})
	}
	buyers.Wait()
	if items, err := s.List(t.Context(), "paris", "", 10); sold.Load() != 10 || err != nil || len(items) != 1 || items[0].Count != 0 {
		t.Errorf("%d of 10 were sold; left: %v, %v", sold.Load(), items, err)
	}
}
