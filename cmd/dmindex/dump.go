package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
)

func dumpCommand() *cobra.Command {
	return onIndex(&cobra.Command{
		Use:   "dump FILE",
		Short: "Write the whole index to a file (- is stdout)",
		Long: `Dump writes every pair to FILE, with a digest at its end. Pairs that are changed while it runs may be in the file as they were
before or after the change. FILE appears only once it is complete.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		return func(c *client.Client) error {
			if args[0] == "-" {
				return dump(cmd, c, cmd.OutOrStdout())
			}
			return dumpTo(cmd, c, args[0])
		}, nil
	})
}

// dumpTo writes beside path and renames once all is there and on disk.
func dumpTo(cmd *cobra.Command, c *client.Client, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = dump(cmd, c, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func dump(cmd *cobra.Command, c *client.Client, out io.Writer) error {
	w, err := dumpfile.NewWriter(out, dumpfile.Description{Index: c.Map().Index, Created: time.Now().UTC(), Program: version.String()})
	if err != nil {
		return err
	}
	p := newProgress(cmd.ErrOrStderr(), "dumped")
	var n uint64
	for pair, err := range c.Scan(cmd.Context(), nil, nil, client.ScanOptions{}) {
		if err == nil {
			err = w.Add(pair)
		}
		if err != nil {
			return err
		}
		n++
		p.at(n)
	}
	count, digest, err := w.Close()
	if err != nil {
		return err
	}
	p.end(count)
	fmt.Fprintf(cmd.ErrOrStderr(), "digest %x\n", digest)
	return nil
}

func restoreCommand() *cobra.Command {
	var replace bool
	cmd := onIndex(&cobra.Command{
		Use:   "restore FILE",
		Short: "Put every pair of a dump into an index",
		Long: `Restore reads FILE once to check its digest, so that a damaged dump changes nothing, and then puts its pairs. The index must be
empty, unless --replace is given: then pairs of the dump replace those of the same key, and others stay; so do members of a sorted set
that the dump does not have. (- is stdin, which cannot be read twice: its digest is checked at the end.)`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		return func(c *client.Client) error { return restore(cmd, c, args[0], replace) }, nil
	})
	cmd.Flags().BoolVar(&replace, "replace", false, "restore into an index that is not empty: pairs of the dump replace existing ones")
	return cmd
}

func restore(cmd *cobra.Command, c *client.Client, path string, replace bool) error {
	if !replace {
		for _, err := range c.Scan(cmd.Context(), nil, nil, client.ScanOptions{Limit: 1, KeysOnly: true}) {
			if err != nil {
				return err
			}
			return errors.New("the index is not empty: --replace puts the dump's pairs over what is there")
		}
	}
	if path != "-" {
		if err := verify(cmd, path); err != nil {
			return err
		}
	}
	in, err := openOrStd(cmd, path)
	if err != nil {
		return err
	}
	defer in.Close()
	var count uint64
	var digest [sha256.Size]byte
	p := newProgress(cmd.ErrOrStderr(), "restored")
	var readErr error
	stored, err := c.Load(cmd.Context(), iter.Seq[client.Pair](func(yield func(client.Pair) bool) {
		count, digest, readErr = dumpfile.Read(in, func(dumpfile.Description) error { return nil }, func(p client.Pair) error {
			p.Key, p.Value = bytes.Clone(p.Key), bytes.Clone(p.Value)
			if !yield(p) {
				return errStopped
			}
			return nil
		})
	}), client.LoadOptions{Progress: p.at})
	if err != nil || readErr != nil {
		return fmt.Errorf("%d pairs were restored, then: %w", stored, errors.Join(err, readErr))
	}
	p.end(count)
	fmt.Fprintf(cmd.ErrOrStderr(), "digest %x\n", digest)
	return nil
}

// errStopped ends the reading of a dump whose pairs cannot be put.
var errStopped = errors.New("stopped")

// verify reads a whole dump and says what it is.
func verify(cmd *cobra.Command, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	describe := func(d dumpfile.Description) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "dump of index %s, written %s by dmindex %s\n", d.Index, d.Created.Format(time.RFC3339), d.Program)
		return nil
	}
	count, _, err := dumpfile.Read(bufio.NewReader(f), describe, func(client.Pair) error { return nil })
	if err != nil {
		return fmt.Errorf("nothing was restored: %s: %w", path, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d pairs, the digest is right\n", count)
	return nil
}
