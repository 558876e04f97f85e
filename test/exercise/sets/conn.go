package sets

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn is a connection to some server, by RESP2. One goroutine uses it.
type conn struct {
	o   *Options
	nc  net.Conn // nil: it has to be dialled
	in  *bufio.Reader
	out []byte
}

// reply is what a command was answered. text of an array is empty.
type reply struct {
	kind byte // of RESP: + - : $ *
	text string
	null bool
	all  []reply
}

// outcome is what is known of a command.
type outcome int

const (
	done    outcome = iota
	nothing         // it was not done
	doubt           // it was done, or will be, or not
)

// ask sends commands in one piece, and returns the reply to the last one. A command is in doubt
// when its reply does not come. The error is one that no command may be answered by.
func (c *conn) ask(commands ...[]string) (r reply, is outcome, err error) {
	if c.nc == nil {
		if err := c.dial(); err != nil {
			c.o.wait()
			return r, nothing, nil
		}
	}
	c.out = c.out[:0]
	for _, args := range commands {
		c.append(args)
	}
	_ = c.nc.SetDeadline(time.Now().Add(c.o.Limit))
	if _, err := c.nc.Write(c.out); err != nil {
		c.close()
		return r, doubt, nil // some of it may have been sent
	}
	for range commands {
		if r, err = c.read(); err != nil {
			c.close()
			return r, doubt, nil
		}
	}
	if r.kind != '-' {
		return r, done, nil
	}
	switch word, _, _ := strings.Cut(r.text, " "); word {
	case "UNKNOWN":
		return r, doubt, nil
	case "UNAVAILABLE", "TIMEOUT", "EXECABORT":
		c.o.wait()
		return r, nothing, nil
	}
	return r, nothing, fmt.Errorf("%q is answered by %q", commands, r.text)
}

func (c *conn) dial() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Limit)
	defer cancel()
	nc, err := c.o.Dial(ctx)
	if err != nil {
		return err
	}
	c.nc, c.in = nc, bufio.NewReader(nc)
	if c.o.Password == "" {
		return nil
	}
	r, _, err := c.ask([]string{"AUTH", c.o.Password})
	if err == nil && r.kind != '+' {
		err = errors.New(r.text)
	}
	if err != nil {
		c.close()
	}
	return err
}

func (c *conn) close() {
	if c.nc != nil {
		_ = c.nc.Close() // nothing of it is used any more
		c.nc = nil
	}
}

func (c *conn) append(args []string) {
	c.out = fmt.Appendf(c.out, "*%d\r\n", len(args))
	for _, a := range args {
		c.out = fmt.Appendf(c.out, "$%d\r\n%s\r\n", len(a), a)
	}
}

// read reads one reply.
func (c *conn) read() (r reply, err error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return r, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return r, errors.New("an empty line for a reply")
	}
	r.kind, r.text = line[0], line[1:]
	if r.kind != '$' && r.kind != '*' {
		return r, nil
	}
	n, err := strconv.Atoi(r.text)
	if err != nil {
		return r, err
	}
	if r.text = ""; n < 0 {
		r.null = true
		return r, nil
	}
	if r.kind == '*' {
		for range n {
			one, err := c.read()
			if err != nil {
				return r, err
			}
			r.all = append(r.all, one)
		}
		return r, nil
	}
	b := make([]byte, n+2)
	if _, err = io.ReadFull(c.in, b); err == nil {
		r.text = string(b[:n])
	}
	return r, err
}

// number is a reply as a number.
func (r reply) number() (float64, error) {
	if r.null {
		return 0, nil
	}
	return strconv.ParseFloat(r.text, 64)
}
