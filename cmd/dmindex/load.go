package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/client"
)

func loadCommand() *cobra.Command {
	var n notation
	var tree string
	cmd := onIndex(&cobra.Command{
		Use:   "load [FILE]",
		Short: "Load many pairs: lines of key, tab, value; or a tree of files",
		Long: `Load puts many pairs: those of FILE (- is stdin), a line each, key and value separated by a tab; or, with --tree DIR, one for
every file below DIR: its path, with slashes, and as value its size, mode and SHA-256. DIR may be a symbolic link; links below it are
skipped. A line ends with a newline only: a carriage return before it belongs to the value.`,
		Args: cobra.MaximumNArgs(1),
	}, func(cmd *cobra.Command, args []string) (func(*client.Client) error, error) {
		if (tree == "") == (len(args) == 0) {
			return nil, errors.New("name a FILE, or a directory with --tree; not both")
		}
		dir, err := directory(tree)
		if err != nil {
			return nil, err
		}
		return func(c *client.Client) error {
			if tree != "" {
				return load(cmd, c, func(yield func(client.Pair) bool) error { return files(cmd.Context(), dir, yield) })
			}
			in, err := openOrStd(cmd, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return load(cmd, c, func(yield func(client.Pair) bool) error { return lines(in, &n, yield) })
		}, nil
	})
	n.flag(cmd)
	cmd.Flags().StringVar(&tree, "tree", "", "load the files below this directory")
	return cmd
}

// load puts what a source yields and says how it goes on. The source's own error comes after what
// it yielded was stored.
func load(cmd *cobra.Command, c *client.Client, source func(yield func(client.Pair) bool) error) error {
	var sourceErr error
	p := newProgress(cmd.ErrOrStderr(), "loaded")
	stored, err := c.Load(cmd.Context(), iter.Seq[client.Pair](func(yield func(client.Pair) bool) {
		sourceErr = source(yield)
	}), client.LoadOptions{Progress: p.at})
	p.end(stored)
	return errors.Join(err, sourceErr)
}

// directory is the directory that a --tree names, itself or by a symbolic link, which a walk would
// not follow.
func directory(tree string) (string, error) {
	if tree == "" {
		return "", nil
	}
	dir, err := filepath.EvalSymlinks(tree)
	if err != nil {
		return "", fmt.Errorf("--tree %s: %w", tree, err)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return "", fmt.Errorf("--tree %s: %w", tree, err)
	}
	return dir, nil
}

// files yields path -> size, mode and SHA-256 of every regular file below dir.
func files(ctx context.Context, dir string, yield func(client.Pair) bool) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		value, err := describeFile(path)
		if err != nil {
			return err
		}
		if !yield(client.Pair{Key: []byte(filepath.ToSlash(rel)), Value: value}) {
			return fs.SkipAll
		}
		return nil
	})
}

func describeFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%d %v %x", info.Size(), info.Mode(), sum.Sum(nil)), nil
}

// longestLine of an input; no index takes a pair that long.
const longestLine = 1 << 20

// lines yields the pairs of lines "key, tab, value".
func lines(in io.Reader, n *notation, yield func(client.Pair) bool) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 64<<10), longestLine)
	scanner.Split(splitLines)
	line := 1
	for ; scanner.Scan(); line++ {
		text, value, ok := strings.Cut(scanner.Text(), "\t")
		if !ok {
			return fmt.Errorf("line %d has no tab between key and value", line)
		}
		key, err := n.parse(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !yield(client.Pair{Key: key, Value: []byte(value)}) {
			return nil
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return nil
}

// splitLines is a bufio.SplitFunc for lines that end with a newline. Unlike bufio.ScanLines it
// leaves carriage returns alone, which are bytes of a value like any other.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// progress says every second how far something is.
type progress struct {
	out         io.Writer
	what        string
	begin, last time.Time
}

func newProgress(out io.Writer, what string) *progress {
	now := time.Now()
	return &progress{out: out, what: what, begin: now, last: now}
}

// at is called now and then with how many pairs are done.
func (p *progress) at(n uint64) {
	if now := time.Now(); now.Sub(p.last) >= time.Second {
		p.last = now
		p.line(n)
	}
}

func (p *progress) end(n uint64) { p.line(n) }

func (p *progress) line(n uint64) {
	seconds := time.Since(p.begin).Seconds()
	fmt.Fprintf(p.out, "%s %d pairs in %.1f s, %.0f a second\n", p.what, n, seconds, float64(n)/seconds)
}
