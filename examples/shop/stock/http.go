package stock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/dmindex/dmindex/client"
)

const (
	requestTime = 5 * time.Second // of a request, all attempts together
	pageSize    = 100             // items of an answer
	mostPieces  = 1_000_000       // of a delivery or an order
)

// errBad is wrapped by errors of requests that can never succeed.
var errBad = errors.New("bad request")

// Handler serves
//
//	GET  /readyz                           200 if the index answers
//	GET  /shops/{shop}/stock?after=ITEM    the next 100 items, as JSON
//	POST /shops/{shop}/stock/{item}?add=N  a delivery
//	PUT  /shops/{shop}/orders/{id}?item=ITEM&count=N
//
// A 503 says that the same request may succeed later, and a 500 that a delivery may have been made
// or not.
func (s Store) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", answer(func(ctx context.Context, _ *http.Request) (any, error) {
		_, err := s.index.Get(ctx, []byte("{readyz}"))
		if errors.Is(err, client.ErrNotFound) {
			err = nil
		}
		return "ready", err
	}))
	mux.Handle("GET /shops/{shop}/stock", answer(func(ctx context.Context, r *http.Request) (any, error) {
		after := r.FormValue("after")
		shop, err := names(r.PathValue("shop"), or(after, "first"))
		if err != nil {
			return nil, err
		}
		return s.List(ctx, shop, after, pageSize)
	}))
	mux.Handle("POST /shops/{shop}/stock/{item}", answer(func(ctx context.Context, r *http.Request) (any, error) {
		count, err := pieces(r.FormValue("add"))
		if err != nil {
			return nil, err
		}
		shop, err := names(r.PathValue("shop"), r.PathValue("item"))
		if err != nil {
			return nil, err
		}
		return s.Deliver(ctx, shop, r.PathValue("item"), count)
	}))
	mux.Handle("PUT /shops/{shop}/orders/{id}", answer(func(ctx context.Context, r *http.Request) (any, error) {
		count, err := pieces(r.FormValue("count"))
		if err != nil {
			return nil, err
		}
		shop, err := names(r.PathValue("shop"), r.PathValue("id"), r.FormValue("item"))
		if err != nil {
			return nil, err
		}
		return "sold", s.Order(ctx, shop, r.PathValue("id"), r.FormValue("item"), count)
	}))
	return mux
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// names checks that shop and others are names, and returns shop.
func names(shop string, others ...string) (string, error) {
	for _, n := range append(others, shop) {
		if !namePattern.MatchString(n) {
			return "", fmt.Errorf("%w: %q is no name: write 1 to 40 of a-z, 0-9 and -", errBad, n)
		}
	}
	return shop, nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func pieces(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > mostPieces {
		return 0, fmt.Errorf("%w: %q is no count: write 1 to %d", errBad, text, mostPieces)
	}
	return n, nil
}

// answer makes a handler of a function that returns what to answer as JSON.
func answer(do func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), requestTime)
		defer stop()
		result, err := do(ctx, r)
		if err != nil {
			if status(err) == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "1")
			}
			http.Error(w, err.Error(), status(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result) // the client is gone
	})
}

// status is the HTTP status for an error.
func status(err error) int {
	switch {
	case errors.Is(err, errBad), errors.Is(err, client.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ErrSoldOut), errors.Is(err, ErrTaken):
		return http.StatusConflict
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrPoolFull),
		errors.Is(err, client.ErrDataLost), errors.Is(err, client.ErrMismatch):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
