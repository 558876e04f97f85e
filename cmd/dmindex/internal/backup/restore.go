package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// ErrOtherKeys is returned when an index has pairs that are not in the artifact.
var ErrOtherKeys = errors.New("the index has keys that are not the backup's: nothing was restored over them")

// errIncomplete is returned when an index lacks pairs after all were put.
var errIncomplete = errors.New("the index lacks pairs of the backup")

// Restore loads an artifact into an index.
//
//  1. The artifact is read as a whole and compared with its digest, and with the index. An index
//     with a pair that is not in the artifact, or has another value or deadline there, is refused
//     before anything is put. What an earlier attempt put is no such pair, nor is a member of a
//     sorted set that lacks its deadline: sets get theirs after their members.
//  2. The pairs are put whose keys are not there.
//  3. Artifact and index are compared once more: now they must be equal, but for pairs with a
//     deadline that the index lacks. These have expired by the clock of their server, which
//     decides: each was put, and the server said so.
//
// Nothing is replaced: what a program puts meanwhile stays, and 3 finds it unless it came later.
// So a restore can be repeated wherever it was interrupted, and never mixes with other content.
func Restore(ctx context.Context, index Index, s Store, name, digest string, progress func(keys uint64)) (config.BackupReport, error) {
	r, lacks, err := compare(ctx, index, s, name, digest)
	if err != nil || lacks == (lacking{}) {
		return r, err
	}
	var readErr error
	stored, err := index.Load(ctx, func(yield func(client.Pair) bool) {
		_, readErr = read(ctx, s, name, digest, func(p client.Pair) error {
			p.Key, p.Value = bytes.Clone(p.Key), bytes.Clone(p.Value)
			if !yield(p) {
				return errStopped
			}
			return nil
		})
	}, client.LoadOptions{Progress: progress, KeepExisting: true})
	if err != nil || readErr != nil {
		return r, fmt.Errorf("%d pairs were put, then: %w", stored, errors.Join(err, readErr))
	}
	if r, lacks, err = compare(ctx, index, s, name, digest); err == nil && lacks.endless+lacks.undated > 0 {
		err = fmt.Errorf("%w, or their deadlines: %d", errIncomplete, lacks.endless+lacks.undated)
	}
	return r, err
}

// errStopped ends the reading of an artifact whose pairs cannot be put.
var errStopped = errors.New("stopped")

// lacking are the pairs of an artifact that an index lacks.
type lacking struct {
	endless uint64
	expire  uint64 // with a deadline, which may have passed
	undated uint64 // members that are there, but for their deadline
}

// compare goes through an artifact and an index in the order of their keys and counts the pairs
// that the index lacks. Errors name no key but the place of a pair: they end up in the status of
// the index, which shows no keys.
func compare(ctx context.Context, index Index, s Store, name, digest string) (r config.BackupReport, lacks lacking, err error) {
	next, stop := iter.Pull2(index.Scan(ctx, nil, nil, client.ScanOptions{}))
	defer stop()
	has, more := client.Pair{}, true
	advance := func() (err error) {
		has, err, more = next()
		return err
	}
	if err := advance(); err != nil {
		return r, lacks, err
	}
	var last *client.Pair
	at := 0
	r, err = read(ctx, s, name, digest, func(p client.Pair) error {
		if at++; last != nil && comparePairs(*last, p) >= 0 {
			return fmt.Errorf("the artifact is damaged, restore from another one: the key of pair %d is not behind that of the pair before it", at)
		}
		last = &client.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value), Member: p.Member}
		switch order := comparePairs(has, p); {
		case !more || order > 0:
			if p.Expires.IsZero() {
				lacks.endless++
			} else {
				lacks.expire++
			}
			return nil
		case order < 0:
			return fmt.Errorf("%w: one before pair %d of the artifact", ErrOtherKeys, at)
		case p.Member && has.Expires.IsZero() && !p.Expires.IsZero() && has.Member && has.Score == p.Score:
			lacks.undated++ // comparePairs has looked at the member
		case !bytes.Equal(has.Value, p.Value) || !has.Expires.Equal(p.Expires) || has.Hash != p.Hash || has.Member != p.Member || has.Score != p.Score:
			return fmt.Errorf("%w: pair %d of the artifact has another value, type or deadline", ErrOtherKeys, at)
		}
		return advance()
	})
	if err == nil && more {
		err = fmt.Errorf("%w: one behind all %d pairs of the artifact", ErrOtherKeys, at)
	}
	return r, lacks, err
}

// comparePairs orders pairs by their keys, and members of a sorted set by their own order.
func comparePairs(a, b client.Pair) int {
	order := bytes.Compare(a.Key, b.Key)
	if order == 0 && a.Member && b.Member {
		order = bytes.Compare(a.Value, b.Value)
	}
	return order
}
