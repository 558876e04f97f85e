package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

func getCommand() *cobra.Command {
	var n notation
	cmd := onIndex(&cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		key, err := n.parse(args[0])
		return func(c *client.Client) error {
			value, err := c.Get(cmd.Context(), key)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", value)
			}
			return err
		}, err
	})
	n.flag(cmd)
	return cmd
}

func putCommand() *cobra.Command {
	var n notation
	cmd := onIndex(&cobra.Command{
		Use:   "put KEY VALUE",
		Short: "Set the value of a key (VALUE - reads it from stdin)",
		Args:  cobra.ExactArgs(2),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		key, err := n.parse(args[0])
		value := []byte(args[1])
		if err == nil && args[1] == "-" {
			// An index never takes a value that long; the server says what it takes.
			value, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1<<20))
		}
		return func(c *client.Client) error { return c.Put(cmd.Context(), key, value) }, err
	})
	n.flag(cmd)
	return cmd
}

func delCommand() *cobra.Command {
	var n notation
	cmd := onIndex(&cobra.Command{
		Use:   "del KEY...",
		Short: "Delete keys; a missing key is not an error",
		Args:  cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		var keys [][]byte
		for _, text := range args {
			key, err := n.parse(text)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		return func(c *client.Client) error {
			deleted := 0
			for _, key := range keys {
				switch err := c.Delete(cmd.Context(), key); {
				case err == nil:
					deleted++
				case !errors.Is(err, client.ErrNotFound):
					return fmt.Errorf("%d keys were deleted, then: %w", deleted, err)
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d deleted\n", deleted)
			return nil
		}, nil
	})
	n.flag(cmd)
	return cmd
}

func scanCommand() *cobra.Command {
	var n notation
	var o client.ScanOptions
	var prefix string
	var count bool
	cmd := onIndex(&cobra.Command{
		Use:   "scan [START [END]]",
		Short: "Print pairs in order, from START on and before END",
		Args:  cobra.MaximumNArgs(2),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		start, end, err := bounds(&n, args, prefix)
		o.KeysOnly = o.KeysOnly || count
		return func(c *client.Client) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			pairs := 0
			for pair, err := range c.Scan(cmd.Context(), start, end, o) {
				if err != nil {
					return errors.Join(err, out.Flush())
				}
				pairs++
				switch {
				case count:
				case o.KeysOnly:
					fmt.Fprintln(out, n.print(pair.Key))
				case pair.Member:
					fmt.Fprintf(out, "%s\t%s\t(a member of a sorted set, with score %v)\n", n.print(pair.Key), pair.Value, pair.Score)
				case pair.Hash:
					fmt.Fprintf(out, "%s\t(a hash of %d bytes: HGETALL of a Redis client shows it)\n", n.print(pair.Key), len(pair.Value))
				default:
					fmt.Fprintf(out, "%s\t%s\n", n.print(pair.Key), pair.Value)
				}
			}
			if count {
				fmt.Fprintln(out, pairs)
			}
			return out.Flush()
		}, err
	})
	n.flag(cmd)
	f := cmd.Flags()
	f.Uint64Var(&o.Limit, "limit", 0, "most pairs to print; 0 = all")
	f.BoolVar(&o.Reverse, "reverse", false, "in descending order, from END down")
	f.BoolVar(&o.KeysOnly, "keys", false, "print only the keys")
	f.BoolVar(&count, "count", false, "print only the number of pairs")
	f.StringVar(&prefix, "prefix", "", "only keys with this prefix; instead of START and END")
	return cmd
}

// bounds are the ends of a scan: those of args, or all keys with a prefix.
func bounds(n *notation, args []string, prefix string) (start, end []byte, err error) {
	if prefix != "" {
		if len(args) > 0 {
			return nil, nil, errors.New("give START and END or --prefix, not both")
		}
		start, err = n.parse(prefix)
		return start, keyrange.PrefixEnd(start), err
	}
	if len(args) > 0 {
		start, err = n.parse(args[0])
	}
	if len(args) > 1 && err == nil {
		end, err = n.parse(args[1])
	}
	return start, end, err
}

// openOrStd opens a file to read, or takes stdin for "-".
func openOrStd(cmd *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(path)
}
