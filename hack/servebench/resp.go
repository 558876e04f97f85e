package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// client is a connection that speaks RESP and checks nothing but errors.
type client struct {
	nc  net.Conn
	in  *bufio.Reader
	out []byte
}

// replyLimit bounds how long a reply may take.
const replyLimit = time.Minute

func dial(address string) (*client, error) {
	nc, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, err
	}
	return &client{nc: nc, in: bufio.NewReaderSize(nc, 64<<10)}, nil
}

func (c *client) close() { _ = c.nc.Close() }

// begin appends the head of a command of n arguments to what is sent next.
func (c *client) begin(n int) {
	c.out = append(strconv.AppendInt(append(c.out, '*'), int64(n), 10), '\r', '\n')
}

func (c *client) arg(text []byte) {
	c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(text)), 10), '\r', '\n')
	c.out = append(append(c.out, text...), '\r', '\n')
}

func (c *client) command(args ...string) {
	c.begin(len(args))
	for _, a := range args {
		c.arg([]byte(a))
	}
}

// send sends what was appended and takes as many replies.
func (c *client) send(replies int) error {
	if err := c.nc.SetDeadline(time.Now().Add(replyLimit)); err != nil {
		return err
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	for ; err == nil && replies > 0; replies-- {
		err = c.reply()
	}
	return err
}

// reply takes one reply. An error reply is an error.
func (c *client) reply() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 3 {
		return fmt.Errorf("reply %q", line)
	}
	rest := line[1 : len(line)-2]
	switch line[0] {
	case '-':
		return errors.New(string(rest))
	case '$', '*':
		n, err := strconv.Atoi(string(rest))
		if err != nil {
			return err
		}
		if line[0] == '$' {
			if n >= 0 {
				_, err = c.in.Discard(n + 2)
			}
			return err
		}
		for ; n > 0 && err == nil; n-- {
			err = c.reply()
		}
		return err
	}
	return nil
}

// askOnce sends one command on a connection of its own.
func askOnce(address string, args ...string) error {
	c, err := dial(address)
	if err != nil {
		return err
	}
	defer c.close()
	c.command(args...)
	return c.send(1)
}

// crowd runs do on connections to the addresses in turn, until together they have done all
// operations; do is given how many connections there were before this one, and does some more
// operations, whose number it returns.
func crowd(addresses []string, connections, operations int, do func(c *client, of int) (int, error)) error {
	var group sync.WaitGroup
	errs := make([]error, connections)
	for i := range connections {
		group.Go(func() {
			c, err := dial(addresses[i%len(addresses)])
			if err != nil {
				errs[i] = err
				return
			}
			defer c.close()
			for left := operations/connections + 1; left > 0; {
				n, err := do(c, i)
				if err != nil {
					if errors.Is(err, io.EOF) {
						err = errors.New("the server ended the connection")
					}
					errs[i] = err
					return
				}
				left -= n
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
