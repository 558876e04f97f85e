package computeserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// program is one goroutine that uses an index by the SDK and by a Redis client, and tells the
// judge.
type program struct {
	name  int
	j     *judge
	rnd   *rand.Rand
	sdk   *client.Client
	redis *redis.Client
	n     int
	hasty bool // some calls have little time
	piped bool // most steps are pipelines of the Redis client
	slow  bool // some scans stop halfway until there is another map
	maps  *maps
}

// maps says when there is another map.
type maps struct {
	mu   sync.Mutex
	next chan struct{} // closed then
}

// end says that there will always be another one.
func (m *maps) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.next)
}

func newMaps() *maps { return &maps{next: make(chan struct{})} }

func (m *maps) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

func (m *maps) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.next)
	m.next = make(chan struct{})
}

const (
	programKeys = 14
	deletes     = 4 // of the choices of a step
	pipelined   = 10
)

func programKey(i int) string { return string(rune('a'+i)) + "-key" }

// lasting reports whether a key is never deleted: a scan that misses it is wrong, whatever changes
// meanwhile.
func lasting(key string) bool { return key[0]%3 == 0 }

func (p *program) key() string { return programKey(p.rnd.IntN(programKeys)) }

func (p *program) value() string {
	p.n++
	return fmt.Sprintf("%d-%d", p.name, p.n)
}

// step makes one call.
func (p *program) step(ctx context.Context) {
	if p.hasty && p.rnd.IntN(4) == 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(p.rnd.IntN(8000))*time.Microsecond)
		defer stop()
	}
	t := told{key: p.key(), value: p.value(), call: p.j.env.Now()}
	k, v := []byte(t.key), []byte(t.value)
	choice := p.rnd.IntN(16)
	if p.piped && p.rnd.IntN(3) > 0 {
		choice = pipelined
	}
	if choice == deletes && lasting(t.key) {
		choice = 0
	}
	switch choice {
	case 0, 1:
		t.op, t.err = "put", p.sdk.Put(ctx, k, v)
	case 2:
		t.op, t.err = "insert", p.sdk.Insert(ctx, k, v)
	case 3:
		t.op, t.err = "update", p.sdk.Update(ctx, k, v)
	case deletes:
		t.op, t.value, t.err = "delete", "", p.sdk.Delete(ctx, k)
	case 5:
		p.putMany(ctx)
		return
	case 6:
		p.mset(ctx)
		return
	case 7:
		p.getMany(ctx)
		return
	case 8, 9:
		p.scan(ctx)
		return
	case pipelined, 11, 12:
		p.pipeline(ctx)
		return
	case 13:
		p.scanRESP(ctx)
		return
	default:
		var got []byte
		got, t.err = p.sdk.Get(ctx, k)
		t.op, t.value = "get", string(got)
	}
	t.ret = p.j.env.Now()
	p.j.note(t)
}

// keys are some, each once.
func (p *program) keys() (keys []string) {
	for i := range programKeys {
		if p.rnd.IntN(3) == 0 {
			keys = append(keys, programKey(i))
		}
	}
	return keys
}

// many is what is told of a call that puts many pairs; of the error only that pair is known which
// it names.
func (p *program) many(call time.Duration, pairs []client.Pair, err error) {
	var named *client.Error
	errors.As(err, &named)
	ret := p.j.env.Now()
	for _, pair := range pairs {
		t := told{op: "put", key: string(pair.Key), value: string(pair.Value), call: call, ret: ret, err: err}
		if err != nil && (named == nil || string(named.Key) != t.key) {
			t.err = client.ErrUnknown
		}
		p.j.note(t)
	}
}

func (p *program) putMany(ctx context.Context) {
	var pairs []client.Pair
	for _, key := range p.keys() {
		pairs = append(pairs, client.Pair{Key: []byte(key), Value: []byte(p.value())})
	}
	call := p.j.env.Now()
	p.many(call, pairs, p.sdk.PutMany(ctx, pairs))
}

// mset is MSET: not atomic, but each of its pairs is put within the call.
func (p *program) mset(ctx context.Context) {
	var pairs []client.Pair
	var args []any
	for _, key := range append(p.keys(), "z-key") {
		pairs = append(pairs, client.Pair{Key: []byte(key), Value: []byte(p.value())})
		args = append(args, key, string(pairs[len(pairs)-1].Value))
	}
	call := p.j.env.Now()
	p.many(call, pairs, p.redis.MSet(ctx, args...).Err())
}

func (p *program) getMany(ctx context.Context) {
	var keys [][]byte
	for _, key := range p.keys() {
		keys = append(keys, []byte(key))
	}
	call := p.j.env.Now()
	values, err := p.sdk.GetMany(ctx, keys)
	ret := p.j.env.Now()
	for i := range values {
		t := told{op: "get", key: string(keys[i]), value: string(values[i]), call: call, ret: ret, err: err}
		if values[i] == nil {
			t.err = client.ErrNotFound
		}
		p.j.note(t)
	}
}

// scan reads all keys.
func (p *program) scan(ctx context.Context) {
	o := client.ScanOptions{Reverse: p.rnd.IntN(2) == 0}
	call, last, got := p.j.env.Now(), "", map[string]string{}
	var another <-chan struct{}
	if p.slow && p.rnd.IntN(2) == 0 {
		another = p.maps.changes()
	}
	for pair, err := range p.sdk.Scan(ctx, nil, nil, o) {
		if err != nil {
			p.j.note(told{op: "get", key: "scan", err: err})
			return
		}
		if key := string(pair.Key); last != "" && (key <= last) != o.Reverse {
			p.j.note(told{op: "get", key: key, value: "out of order"})
		}
		last = string(pair.Key)
		got[last] = string(pair.Value)
		if another != nil {
			for range 2 { // by the second one its client knows the first
				select {
				case <-another:
				case <-ctx.Done():
				}
				another = p.maps.changes()
			}
			another = nil
		}
	}
	p.read(call, got)
}

// TestProgramsAreToldTheTruth runs programs while ranges move between servers, whose connections
// are cut, whose clients lose their leases, and whose log is lost with what is not durable.
func TestProgramsAreToldTheTruth(t *testing.T) {
	for name, w := range map[string]troubles{
		"moves":                          {owned: true, routing: config.RoutingOwner},
		"moves and a slow log":           {owned: true, routing: config.RoutingOwner, log: true},
		"moves and cuts":                 {owned: true, routing: config.RoutingOwner, faults: true},
		"any server, cuts and lapses":    {routing: config.RoutingAny, faults: true},
		"shared, cuts and lapses":        {routing: config.RoutingOwner, faults: true},
		"any server, divided, lost logs": {routing: config.RoutingAny, faults: true, log: true, divided: true},
		"shared, lost logs":              {routing: config.RoutingOwner, faults: true, log: true},
	} {
		if testing.Short() && w.log && !w.divided {
			continue // one run with a log will do for the race detector
		}
		t.Run(name, func(t *testing.T) { programs(t, w) })
	}
}

// troubles are what a run of programs has.
type troubles struct {
	owned   bool // ranges have owners, else every server may use every key
	routing string
	faults  bool // connections are cut, and leases lapse
	log     bool // changes are not durable at once; with faults, logs are lost and no leases
	divided bool // each pipeline is
}

func programs(t *testing.T, is troubles) {
	rnd, j := computeservertest.Seeded(t), newJudge()
	store := memindex.New(env.Real(), 512, 2048)
	adjust := func(cfg *Config) {
		cfg.Open, cfg.divideAlways = func() (ownership.Opened, error) { return store.Open(), nil }, is.divided
	}
	if is.owned {
		adjust = ownersOf(t, store)
	}
	store.OnChange(j.changed)
	log := &losingLog{t: t, store: store, j: j}
	if is.log {
		store.Log(log.wait)
	}
	c := newCluster(t, is.routing, adjust, 1, 2, 3)
	for _, s := range c.servers {
		s.core.ScanPiece = 1 // a pair, so that scans have several messages
	}
	m := c.split([]uint32{1, 2, 3}, "e", "j")
	ctx, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	defer stop()
	var over atomic.Bool
	var steps atomic.Int64
	var all sync.WaitGroup
	published := newMaps()
	count := 6
	if is.log {
		count = 12
	}
	for i := range count {
		p := &program{name: i, slow: i < 2, piped: is.log, maps: published, j: j, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 1)), hasty: is.faults, sdk: c.sdk(1, 2, 3), redis: c.redis(uint32(1 + i%3))}
		all.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				p.step(ctx)
				steps.Add(1)
			}
		})
	}
	for i := range 15 {
		before := steps.Load()
		var boundaries [][]byte
		for b := 'b'; b < 'o'; b++ {
			if i%5 != 3 && rnd.IntN(3) == 0 {
				boundaries = append(boundaries, []byte(string(b)))
			}
		}
		ids := [][]uint32{{1, 2, 3}, {2, 3, 1}, {3, 1}, {1, 2}}[i%4]
		next, err := partition.ByBoundaries(computeservertest.Index, c.members(ids...), boundaries)
		if err != nil {
			t.Fatal(err)
		}
		next.Generation = m.Generation + 1
		m = next
		c.publish(m)
		published.changed()
		for k := int64(1); k <= 4; k++ {
			computeservertest.Await(t, "programs go on", func() bool { return steps.Load() > before+20*k || ctx.Err() != nil })
			if !is.faults {
				continue
			}
			j.mu.Lock()
			j.faults++
			j.mu.Unlock()
			victim := c.servers[uint32(1+rnd.IntN(3))]
			// rarely: an index that is given up often is opened late
			switch ix := victim.core.Sessions.Opened(); {
			case is.log && i%3 == 2 && k == 1:
				log.lose()
			case ix != nil && !is.owned && i%5 == 2 && k == 1:
				ix.Condemn(errors.New("its leases are over"))
			default:
				victim.callers.closeAll()
			}
		}
	}
	over.Store(true)
	published.end()
	all.Wait()
	if err := ctx.Err(); err != nil {
		t.Fatal(err)
	}
	wrong := j.sentence()
	for _, w := range wrong[:min(len(wrong), 5)] {
		t.Error(w)
	}
	kinds := map[string]int{}
	for _, x := range j.all {
		var known *client.Error
		what := "answered"
		if errors.As(x.err, &known) {
			what = known.Err.Error()
		} else if x.err != nil {
			what = strings.SplitN(x.err.Error(), " ", 2)[0]
		}
		kinds[x.op+" "+what]++
	}
	t.Logf("%d calls, %d wrong: %v; %d changes were lost", steps.Load(), len(wrong), kinds, log.lost)
	if is.log && is.faults && log.lost < 5 {
		t.Errorf("%d changes were lost with five logs", log.lost)
	}
	if !is.faults {
		for kind, n := range kinds {
			if strings.Contains(kind, client.ErrUnavailable.Error()) || strings.Contains(kind, client.ErrUnknown.Error()) || strings.Contains(kind, "UN") {
				t.Errorf("%d times %s, and nothing was cut", n, kind)
			}
		}
	}
}
