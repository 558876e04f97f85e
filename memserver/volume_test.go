package memserver

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// asked is what the operator asks of a server's volume.
func asked(t testing.TB, address string, files *identity.Files) rpcv1.VolumeClient {
	t.Helper()
	conn, err := control.Dial(address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rpcv1.NewVolumeClient(conn)
}

// wantReport checks what a process says of itself.
func wantReport(t *testing.T, v rpcv1.VolumeClient, role rpcv1.ReportVolumeReply_Role, pod string, process, view uint64) {
	t.Helper()
	r := must(v.Report(t.Context(), &rpcv1.ReportVolumeRequest{Pod: pod}))
	if r.Role != role || r.Process.GetPod() != pod || r.Process.GetProcess() != process || r.View.GetNumber() != view || (r.Incarnation != 0) != (role == rpcv1.ReportVolumeReply_PRIMARY) {
		t.Fatalf("it reports %v; want %v, process %d of %q, view %d", r, role, process, pod, view)
	}
}

func view(number uint64, primary string) *rpcv1.VolumeView {
	return &rpcv1.VolumeView{Number: number, Primary: &rpcv1.VolumeProcess{Pod: primary}}
}

// volumeConfig is a server of tcp on a directory.
func volumeConfig(t testing.TB, dir, pod string) Config {
	c := dirConfig(dir)
	c.Shm, c.Pod, c.ID, c.Logger = "", pod, 7, testLog(t)
	return c
}

// TestServerWithoutCopy: a server that was told no pod is its volume's only primary. Everybody may
// ask for the view, and the operator alone for the rest.
func TestServerWithoutCopy(t *testing.T) {
	ca := identitytest.NewCA(t, "pool")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{})
	s, _ := start(t, c)
	operator, client := asked(t, s.Addresses().Control, tlsFiles(t, ca, identity.Operator())), asked(t, s.Addresses().Control, tlsFiles(t, ca, identity.Index("i")))
	wantReport(t, operator, rpcv1.ReportVolumeReply_PRIMARY, "pod", 1, 0)
	_, err := operator.Report(t.Context(), &rpcv1.ReportVolumeRequest{Volume: 8})
	wantCode(t, "another volume", err, codes.NotFound, "volume 7, not 8")
	_, err = client.Report(t.Context(), &rpcv1.ReportVolumeRequest{})
	wantCode(t, "a client asks for the report", err, codes.PermissionDenied)
	if v := must(client.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{Volume: 7, WaitMilliseconds: 1})); !v.Serves || v.View.Number != 0 {
		t.Errorf("the view is %v", v)
	}
	_, err = client.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{Volume: 8})
	wantCode(t, "the view of another volume", err, codes.NotFound)
}

// TestContentThatCannotBeOpened: a server that is primary of its view, and could not open its
// content, says that it opens, so that it is told the view again. Then it serves.
func TestContentThatCannotBeOpened(t *testing.T) {
	taken := must(net.Listen("tcp", "127.0.0.1:0"))
	c := volumeConfig(t, t.TempDir(), "pod-a")
	c.Fabric = taken.Addr().String()
	s, _ := start(t, c)
	v := asked(t, s.Addresses().Control, nil)
	first := &rpcv1.ObeyViewRequest{Volume: 7, View: view(1, "pod-a")}
	_, err := v.Obey(t.Context(), first)
	wantCode(t, "the port of the fabric is in use", err, codes.Unavailable, "in use")
	wantReport(t, v, rpcv1.ReportVolumeReply_OPENING, "pod-a", 1, 1)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	must(v.Obey(t.Context(), first))
	wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 1, 1)
}

// TestFirstView: a server of a new memory whose pod is named serves once a view names it, wakes who
// waits for the view, and serves at once when its process restarts. An older view changes nothing.
func TestFirstView(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "pod-a")
	s, stop := start(t, c)
	v, m := asked(t, s.Addresses().Control, nil), admin(t, s.Addresses().Control, nil)
	wantReport(t, v, rpcv1.ReportVolumeReply_JOINING, "pod-a", 1, 0)
	_, err := m.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})
	wantCode(t, "a copy is asked what it has", err, codes.Unavailable, "not the primary", "joining")
	if s.Addresses().Fabric != "" {
		t.Error("it listens on its fabric")
	}
	awaited := make(chan *rpcv1.AwaitViewReply)
	go func() {
		r, _ := v.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{WaitMilliseconds: 30_000})
		awaited <- r
	}()
	first := &rpcv1.ObeyViewRequest{Volume: 7, View: view(1, "pod-a"), Copies: []*rpcv1.VolumeCopy{{Pod: "pod-a", Control: "a:1"}}}
	must(v.Obey(t.Context(), first))
	if r := <-awaited; !r.GetServes() || r.GetView().GetNumber() != 1 || len(r.GetCopies()) != 1 || r.Copies[0].Control != "a:1" {
		t.Errorf("who waits for a view gets %v", r)
	}
	wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 1, 1)
	must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	first.Copies[0].Control = "a:2"
	must(v.Obey(t.Context(), first))
	_, err = v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-b")})
	wantCode(t, "another view of the number", err, codes.FailedPrecondition)
	for _, bad := range []*rpcv1.ObeyViewRequest{{}, {View: view(0, "pod-a")}, {View: view(2, "")}, {View: view(2, "pod-a"), Copies: make([]*rpcv1.VolumeCopy, 9)}} {
		_, err = v.Obey(t.Context(), bad)
		wantCode(t, "no view", err, codes.InvalidArgument)
	}
	_, err = v.Stop(t.Context(), &rpcv1.StopPrimaryRequest{View: 1})
	wantCode(t, "a primary without a backup is stopped", err, codes.FailedPrecondition)
	stop()

	s, _ = start(t, c)
	v, m = asked(t, s.Addresses().Control, nil), admin(t, s.Addresses().Control, nil)
	wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 2, 1)
	if d := must(m.Describe(t.Context(), &rpcv1.DescribeMemoryRequest{})); len(d.Indexes) != 1 {
		t.Errorf("it has %v", d.Indexes)
	}
	if r := must(v.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{})); !r.Serves || r.View.Number != 1 || r.Copies[0].Control != "a:2" {
		t.Errorf("the view is %v", r)
	}
}

// TestReplaced: a server ends when a view names another pod, and who waits for a view hears of it.
// The next server of the pod begins with an empty memory, and serves nobody.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "pod-a")
	s := must(New(c))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	v := asked(t, s.Addresses().Control, nil)
	must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
	must(admin(t, s.Addresses().Control, nil).Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	awaited := make(chan *rpcv1.AwaitViewReply)
	go func() {
		r, _ := v.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{After: 1, WaitMilliseconds: 30_000})
		awaited <- r
	}()
	must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(2, "pod-b"), Copies: []*rpcv1.VolumeCopy{{Pod: "pod-b", Control: "b:1"}}}))
	if r := <-awaited; r.GetServes() || r.GetView().GetNumber() != 2 || len(r.GetCopies()) != 1 {
		t.Errorf("who waits for a view gets %v", r)
	}
	if err := <-ended; !errors.Is(err, ErrReplaced) {
		t.Errorf("it ends with %v", err)
	}
	if must(os.ReadFile(filepath.Join(dir, region.DataFile)))[0] != 0 {
		t.Error("a program that knows no volumes would serve its memory")
	}
	s, _ = start(t, c)
	wantReport(t, asked(t, s.Addresses().Control, nil), rpcv1.ReportVolumeReply_JOINING, "pod-a", 2, 2)
	if s.region.Existed || must(os.ReadFile(filepath.Join(dir, region.DataFile)))[0] != 0 {
		t.Error("its memory is not empty")
	}
}

// TestVolumeOfALostMemory: what is stored beside a memory that is gone is forgotten, but for the
// number of the process. A pod that is named waits for a view.
func TestVolumeOfALostMemory(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"machine restarted": func(dir string) error {
			f := volumeFileIn(dir)
			v, _, err := f.load()
			v.Boot = "00112233445566778899aabbccddeeff"
			return errors.Join(err, f.save(&v))
		},
		"region gone": func(dir string) error { return os.Remove(filepath.Join(dir, region.DataFile)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, stop := start(t, volumeConfig(t, dir, "pod-a"))
			must(asked(t, s.Addresses().Control, nil).Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
			stop()
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, region.DataFile)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			s, _ = start(t, volumeConfig(t, dir, "pod-a"))
			v := asked(t, s.Addresses().Control, nil)
			wantReport(t, v, rpcv1.ReportVolumeReply_JOINING, "pod-a", 2, 0)
			must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
			wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 2, 1)
		})
	}
}

// TestTakenContent: a process that finds that the content of a copy was taken makes it one that can
// be served, also if an earlier process died meanwhile: locks of indexes say REPAIR,
// presence words are zero, and known clients stay known. It keeps the incarnation of the volume.
func TestTakenContent(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "pod-a")
	s, stop := start(t, c)
	v, m := asked(t, s.Addresses().Control, nil), admin(t, s.Addresses().Control, nil)
	must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
	must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 2, Locks: 8}))
	chunk := must(m.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "a", Client: 1}))
	incarnation := s.Incarnation()
	copy(s.region.Bytes()[chunk.Offset:], "content")
	presence := region.PresenceOffset(c.ChunkBytes, DefaultLockTableBytes, 3)
	binary.LittleEndian.PutUint64(s.region.Bytes()[presence:], 77)
	stop()
	for _, header := range []string{"not written", "written"} {
		f := volumeFileIn(dir)
		stored, _, err := f.load()
		if err != nil {
			t.Fatal(err)
		}
		stored.State.Content, stored.State.View = volumes.Taken, volumes.View{Number: 4, Primary: volumes.Proc{Pod: "pod-a", Process: 1}}
		data := must(os.OpenFile(filepath.Join(dir, region.DataFile), os.O_RDWR, 0))
		if header == "not written" {
			must(data.WriteAt(make([]byte, region.PageBytes), 0))
		}
		if err := errors.Join(f.save(&stored), data.Close()); err != nil {
			t.Fatal(err)
		}
		s, stop = start(t, c)
		r := must(asked(t, s.Addresses().Control, nil).Report(t.Context(), &rpcv1.ReportVolumeRequest{}))
		if r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.View.Number != 4 || r.Incarnation != incarnation {
			t.Fatalf("it reports %v; the incarnation was %d", r, incarnation)
		}
		b := s.region.Bytes()
		if string(b[chunk.Offset:][:7]) != "content" || binary.LittleEndian.Uint64(b[presence:]) != 0 {
			t.Errorf("header %s: the memory is not as it was, or a presence word is", header)
		}
		var first uint64
		s.control.Accounts.Read(func(l *ledger.Ledger) { first = must(l.Index("a")).FirstLock })
		for n, lock := range s.region.LockTable() {
			if want := byte(ledger.NoClient & 0xff); uint64(n) >= 2*first && uint64(n) < 2*(first+8) && lock != want {
				t.Fatalf("header %s: byte %d of the locks is %d", header, n, lock)
			} else if (uint64(n) < 2*first || uint64(n) >= 2*(first+8)) && lock != 0 {
				t.Fatalf("header %s: byte %d of the locks is nobody's and not zero", header, n)
			}
		}
		stop()
	}
}

// TestTakenContentOfAnotherSize: a process that is told another size than a copy has whose content
// was taken refuses to start, and leaves the copy as it is.
func TestTakenContentOfAnotherSize(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "")
	s, stop := start(t, c)
	at := s.region.ChunkOffset(1)
	copy(s.region.Bytes()[at:], "content")
	stop()
	f := volumeFileIn(dir)
	stored, _, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	stored.State.Content = volumes.Taken
	if err := f.save(&stored); err != nil {
		t.Fatal(err)
	}
	for _, other := range []func(*Config){func(c *Config) { c.MemoryBytes *= 2 }, func(c *Config) { c.LockTableBytes = DefaultLockTableBytes / 2 }} {
		c := c
		other(&c)
		s, err := New(c)
		if err == nil {
			s.Close()
		}
		b := must(os.ReadFile(filepath.Join(dir, region.DataFile)))[at:][:7]
		if err == nil || !strings.Contains(err.Error(), "and should have") || string(b) != "content" {
			t.Errorf("it starts with %v, and the memory has %q", err, b)
		}
	}
}

// TestTakenContentThatIsGone: the memory of a copy whose content was taken is gone, and that cannot
// be stored at first. The new memory is not taken for the copy afterwards.
func TestTakenContentThatIsGone(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "")
	s, stop := start(t, c)
	was := s.Incarnation()
	stop()
	f := volumeFileIn(dir)
	stored, _, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	stored.Pod, stored.State.Content, stored.State.View = "pod-a", volumes.Taken, volumes.View{Number: 4, Primary: volumes.Proc{Pod: "pod-a", Process: 1}}
	full := string(f) + ".new"
	if err := errors.Join(f.save(&stored), os.Remove(filepath.Join(dir, region.DataFile)), os.Mkdir(full, 0o700)); err != nil {
		t.Fatal(err)
	}
	if s, err := New(c); err == nil {
		s.Close()
		t.Fatal("what the process is cannot be stored, and it starts")
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	s, _ = start(t, c)
	if r := s.volume.member.Role(); r != volumes.Joining || s.Incarnation() == was {
		t.Errorf("with a new memory the process is %v, with incarnation %d, which was %d", r, s.Incarnation(), was)
	}
}

// TestNoListenerOfACopy: what a copy does not serve, nobody reaches.
func TestNoListenerOfACopy(t *testing.T) {
	c := volumeConfig(t, t.TempDir(), "pod-a")
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	c.Fabric = l.Addr().String()
	s, _ := start(t, c)
	v := asked(t, s.Addresses().Control, nil)
	_, err := v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")})
	wantCode(t, "the port is taken", err, codes.Unavailable, "address already in use")
	l.Close()
	must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
	wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 1, 1)
}

// TestVolumeFileOfAnotherRun: a program that knows no volumes made the memory, in this run of the
// machine, beside the volume's file of an earlier run. The memory is found.
func TestVolumeFileOfAnotherRun(t *testing.T) {
	dir := t.TempDir()
	c := volumeConfig(t, dir, "")
	s, stop := start(t, c)
	was := s.Incarnation()
	copy(s.region.Bytes()[region.PageBytes:], "content")
	stop()
	f := volumeFileIn(dir)
	v, _, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	v.Boot = "00112233445566778899aabbccddeeff"
	if err := f.save(&v); err != nil {
		t.Fatal(err)
	}
	s, _ = start(t, c)
	if s.Incarnation() != was || !s.region.Existed {
		t.Errorf("the memory was emptied: incarnation %d, was %d", s.Incarnation(), was)
	}
}

// TestNumberOfFirstProcess: where a pod's volume of memory is lost with the run of the machine, the
// number of its process is lost too, and must not come again: views name it.
func TestNumberOfFirstProcess(t *testing.T) {
	c := volumeConfig(t, t.TempDir(), "pod-a")
	c.firstProcess = 0
	s, _ := start(t, c)
	if n := s.volume.member.Self().Process; n < 1<<50 || n >= 1<<53 {
		t.Errorf("the first process has number %d", n)
	}
}

// TestFirstOfNewMemory: a server that finds no memory and no files says that it found nothing of
// the processes of its pod before it, whether that is named or not. They may have served.
func TestFirstOfNewMemory(t *testing.T) {
	for _, pod := range []string{"", "pod-a"} {
		for what, c := range map[string]Config{"memory": volumeConfig(t, t.TempDir(), pod), "files": keptConfig(t, t.TempDir(), pod)} {
			c.firstProcess = 100
			s, stop := start(t, c)
			if first := s.volume.member.Report().First; first != 100 {
				t.Errorf("%s, pod %q: the first process whose state it found is %d", what, pod, first)
			}
			stop()
		}
	}
}
