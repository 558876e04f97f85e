// Package stock keeps the stock of many shops in an index, and sells from it.
package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/dmindex/dmindex/client"
)

// ErrSoldOut is returned by Order when the shop has fewer than were ordered. Nothing was changed.
var ErrSoldOut = errors.New("fewer are left")

// ErrTaken is returned by Order when an order with this id is for something else. Nothing was
// changed.
var ErrTaken = errors.New("the id is that of another order")

// attempts is how often Order is made while its outcome is unknown.
const attempts = 5

// Store is the stock of all shops. Its index has atomicPrefix "}". Safe for concurrent use.
type Store struct{ index *client.Client }

// New keeps the stock in index.
func New(index *client.Client) Store { return Store{index} }

// Keys of a shop begin with its name in braces, so that one server has all of them and a
// transaction may change several.
func key(shop, kind, id string) []byte { return []byte("{" + shop + "}" + kind + "/" + id) }

// Deliver adds count pieces of item and returns how many there are then. If its outcome is unknown
// (client.ErrUnknown) the pieces were added or not; nobody adds them twice.
func (s Store) Deliver(ctx context.Context, shop, item string, count int64) (int64, error) {
	return s.index.Increment(ctx, key(shop, "stock", item), count)
}

// Order takes count pieces of item out of the stock and writes the order down, both or none. An
// order that is made again with the same id changes nothing: so a caller that got no answer, or an
// error, may make it again.
func (s Store) Order(ctx context.Context, shop, id, item string, count int64) error {
	order := []byte(fmt.Sprintf("%d %s", count, item))
	sell := func(tx *client.Tx) error {
		switch made, err := tx.Get(key(shop, "order", id)); {
		case err == nil && bytes.Equal(made, order):
			return nil
		case err == nil:
			return fmt.Errorf("order %s of shop %s: %w", id, shop, ErrTaken)
		case !errors.Is(err, client.ErrNotFound):
			return err
		}
		left, err := number(tx.Get(key(shop, "stock", item)))
		if err != nil {
			return err
		}
		if left < count {
			return fmt.Errorf("order %d of %s in shop %s, which has %d: %w", count, item, shop, left, ErrSoldOut)
		}
		tx.Put(key(shop, "stock", item), strconv.AppendInt(nil, left-count, 10))
		tx.Put(key(shop, "order", id), order)
		return nil
	}
	// The server that was asked may have died before it answered. The order itself tells whether it
	// was made, so it can be made again.
	err := client.ErrUnknown
	for i := 0; i < attempts && errors.Is(err, client.ErrUnknown) && ctx.Err() == nil; i++ {
		err = s.index.Transaction(ctx, sell)
	}
	return err
}

// number is a number that was read; 0 if it is not there.
func number(value []byte, err error) (int64, error) {
	if errors.Is(err, client.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(value), 10, 64)
}

// Item is something that a shop has or had.
type Item struct {
	Name  string
	Count int64
}

// List returns at most limit items of a shop that come after the item named after, in the order of
// their names. Other programs may change the stock meanwhile; each item is as it was at some moment
// of the call.
func (s Store) List(ctx context.Context, shop, after string, limit uint64) ([]Item, error) {
	items := []Item{}
	prefix := key(shop, "stock", "")
	start := prefix
	if after != "" {
		start = append(key(shop, "stock", after), 0) // the first key behind it
	}
	end := bytes.Clone(prefix)
	end[len(end)-1]++ // behind all keys with the prefix, which ends with a slash
	for pair, err := range s.index.Scan(ctx, start, end, client.ScanOptions{Limit: limit}) {
		if err != nil {
			return nil, err
		}
		count, err := number(pair.Value, nil)
		if err != nil {
			return nil, fmt.Errorf("the count of key %q: %w", pair.Key, err)
		}
		items = append(items, Item{Name: string(pair.Key[len(prefix):]), Count: count})
	}
	return items, nil
}
