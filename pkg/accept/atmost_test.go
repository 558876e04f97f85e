package accept

import (
	"net"
	"testing"
)

// TestAtMost: the oldest connection ends for one too many; closed ones do not count.
func TestAtMost(t *testing.T) {
	l := AtMost(listen(t), 2)
	open := func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	goesOn := func(what string, client, server net.Conn, want bool) {
		t.Helper()
		_, err := server.Write([]byte{1})
		if err == nil {
			_, err = client.Read(make([]byte, 1))
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	client1, server1 := open()
	_, server2 := open()
	server2.Close()
	server2.Close()
	client3, server3 := open()
	goesOn("the first of two", client1, server1, true)
	client4, server4 := open()
	goesOn("the first of three", client1, server1, false)
	goesOn("the second", client3, server3, true)
	goesOn("the third", client4, server4, true)
	server1.Close() // as its server does when it finds it closed
	client5, server5 := open()
	goesOn("the second of three again", client3, server3, false)
	goesOn("the last", client5, server5, true)
}

// TestAtMostKeepsOtherHosts: a host that opens connections without end closes its own, and not the
// probe that another one has under way.
func TestAtMostKeepsOtherHosts(t *testing.T) {
	l := AtMost(listen(t), 4)
	open := func(from string) (client, server net.Conn) {
		t.Helper()
		client, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	client, server := open("127.0.0.2")
	for range 20 {
		open("127.0.0.1")
	}
	if _, err := server.Write([]byte{1}); err != nil {
		t.Fatalf("the probe was closed: %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Errorf("the probe was closed: %v", err)
	}
}
