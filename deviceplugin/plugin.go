// Package deviceplugin is the kubelet device plugin for RDMA HCAs: it finds them (package hca),
// divides them among resources (package settings), cuts them into slots (package slots), and gives
// those to the kubelet.
//
// One loop does it all. Each round looks at what is there (settings, sysfs, the kubelet's socket,
// what other plugins advertise) and makes what it finds so; nothing depends on having seen a change
// happen. Notices of changed files only make the next round come sooner.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/dmindex/dmindex/deviceplugin/hca"
	"github.com/dmindex/dmindex/deviceplugin/settings"
	"github.com/dmindex/dmindex/deviceplugin/slots"
)

// Config is what a plugin needs to know. All folders are as this process sees them, except Dev.
type Config struct {
	Sysfs string // the machine's /sys; default /sys
	Dev   string // the machine's /dev as the kubelet sees it; default /dev
	// the kubelet's folder of device plugins; default /var/lib/kubelet/device-plugins
	KubeletDir string
	// the kubelet's PodResources socket, to leave alone what others advertise; empty = not asked
	PodResources string
	Settings     string        // file; empty = settings.Default
	Poll         time.Duration // between looks at the machine; default 5 s
	Metrics      string        // host:port of /metrics, /healthz and /readyz; empty = not served
	Pprof        bool          // profiles beside the metrics
	Labeler      Labeler       // nil = no labels
	Version      string
	Log          *slog.Logger
	Ready        func(metrics net.Addr) // called once it serves metrics; may be nil
}

func (c *Config) complete() error {
	or := func(p *string, value string) {
		if *p == "" {
			*p = value
		}
	}
	or(&c.Sysfs, "/sys")
	or(&c.Dev, "/dev")
	or(&c.KubeletDir, "/var/lib/kubelet/device-plugins")
	if c.Poll == 0 {
		c.Poll = 5 * time.Second
	}
	if c.Poll < 10*time.Millisecond || c.Poll > time.Minute {
		return fmt.Errorf("poll is %v: say 10ms to 1m", c.Poll)
	}
	if info, err := os.Stat(c.KubeletDir); err != nil || !info.IsDir() {
		return fmt.Errorf("the kubelet's folder of device plugins %s is not there (%v): mount the node's, or name it with --kubelet-dir", c.KubeletDir, err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// plugin is a running one. Only the loop changes it, but for what the lock guards.
type plugin struct {
	c       Config
	metrics *metrics
	wake    chan struct{} // holds one
	now     func() time.Time
	ending  func() bool

	settings settings.Settings
	read     string // what the settings came from
	others   others
	ours     map[string]bool    // resources that were ever registered here
	servers  map[string]*server // by resource
	labels   labelState
	said     map[string]string // what was logged last about a matter

	mu   sync.Mutex
	view view
}

// labelState is what the node was labelled with.
type labelState struct {
	set  map[string]string
	next time.Time // when to apply them again
	err  error
}

// Run serves until ctx ends, then leaves the kubelet in order. Errors are of the start: settings
// that are wrong, folders that are not there.
func Run(ctx context.Context, c Config) error {
	p, err := newPlugin(c)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	p.ending = func() bool { return ctx.Err() != nil }
	stopHTTP, err := p.serveHTTP()
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	defer stopHTTP()
	defer p.stop()
	files := newWatch(p.c.Log, p.hurry)
	defer files.close()
	ticker := time.NewTicker(p.c.Poll)
	defer ticker.Stop()
	for {
		files.add(p.c.KubeletDir, p.c.Settings)
		p.runRound(ctx)
		select { // whatever goes on in the folders
		case <-ctx.Done():
			return nil
		case <-time.After(min(p.c.Poll, minGap)):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-p.wake:
		}
	}
}

// minGap is the least time between two rounds.
const minGap = 100 * time.Millisecond

func newPlugin(c Config) (*plugin, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	p := &plugin{
		c: c, wake: make(chan struct{}, 1), now: time.Now, ending: func() bool { return false }, settings: settings.Default(),
		others: others{socket: c.PodResources},
		ours:   map[string]bool{}, servers: map[string]*server{}, said: map[string]string{},
	}
	p.metrics = newMetrics(c.Version, p.current)
	if err := p.readSettings(); err != nil {
		return nil, err
	}
	return p, nil
}

// hurry makes the next round come at once.
func (p *plugin) hurry() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *plugin) current() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view
}

// logChange logs what is wrong with a matter when it changes, and that it is right again. What
// fails because the plugin ends is not worth a word.
func (p *plugin) logChange(matter string, err error) {
	before, wrong := p.said[matter]
	switch {
	case err == nil && wrong:
		delete(p.said, matter)
		p.c.Log.Info(matter + ": right again")
	case err != nil && before != err.Error() && !p.ending():
		p.said[matter] = err.Error()
		p.c.Log.Warn(matter, "error", err)
	}
}

// readSettings reads the settings if their files have changed. Wrong ones leave those in force that
// were.
func (p *plugin) readSettings() error {
	if p.c.Settings == "" {
		return nil
	}
	s, read, err := settings.Load(p.c.Settings)
	if read == p.read {
		return p.view.settingsWrong
	}
	p.read = read
	if err != nil {
		p.metrics.settings.WithLabelValues("wrong").Inc()
		return err
	}
	p.metrics.settings.WithLabelValues("used").Inc()
	p.settings = s
	for _, r := range s.Resources {
		p.c.Log.Info("settings", "resource", r.Name, "slots", r.Slots)
	}
	for _, w := range s.Warnings {
		p.c.Log.Warn("settings", "warning", w)
	}
	return nil
}

// runRound looks at everything once, and makes it so.
func (p *plugin) runRound(ctx context.Context) {
	begin := p.now()
	v := view{at: begin, given: map[string]string{}}
	v.settingsWrong = p.readSettings()
	p.logChange("settings", v.settingsWrong)
	v.err = p.gather(ctx, &v)
	p.logChange("machine", v.err)
	v.labelsWrong = p.labels.err
	p.metrics.rounds.Observe(p.now().Sub(begin).Seconds())
	p.mu.Lock()
	p.view = v
	p.mu.Unlock()
}

func (p *plugin) gather(ctx context.Context, v *view) error {
	host, problems, err := hca.Discover(p.c.Sysfs)
	if err != nil {
		return err // what is advertised stays
	}
	v.hcas, v.problems = host.HCAs, len(problems)
	p.logChange("HCAs", errors.Join(problems...))
	p.logChange("other plugins", p.others.askKubelet(ctx, p.now(), func(resource string) bool { return p.ours[resource] || p.wants(resource) }))
	if !p.others.isKnown() {
		return errors.New("nothing is advertised before the kubelet says what other plugins advertise")
	}
	var given [][]hca.HCA
	given, v.refused = p.settings.Divide(host.HCAs, p.others.advertised)
	p.sayRefused(v.refused)
	var advertised []hca.HCA
	for i, r := range p.settings.Resources {
		p.serve(ctx, r, given[i], host.CM, v)
		advertised = append(advertised, given[i]...)
	}
	for name, s := range p.servers {
		if !p.wants(name) {
			p.logChange("stop "+name, s.stop())
			delete(p.servers, name)
			p.c.Log.Info("resource is not advertised any more", "resource", name)
		}
	}
	p.label(ctx, advertised)
	return nil
}

func (p *plugin) wants(resource string) bool {
	for _, r := range p.settings.Resources {
		if r.Name == resource {
			return true
		}
	}
	return false
}

func (p *plugin) sayRefused(refused []settings.Refused) {
	var errs []error
	for _, r := range refused {
		errs = append(errs, fmt.Errorf("%s is left to %s", r.HCA.Name, r.Reason))
	}
	p.logChange("refused HCAs", errors.Join(errs...))
}

// serve makes a resource's server offer the HCAs. A resource that never had any has no server.
func (p *plugin) serve(ctx context.Context, r settings.Resource, hcas []hca.HCA, cm bool, v *view) {
	s := p.servers[r.Name]
	if s == nil && len(hcas) == 0 {
		return
	}
	if s == nil {
		s = newServer(p.c, r.Name, p.metrics, p.hurry)
		p.servers[r.Name], p.ours[r.Name] = s, true
	}
	names := slots.Numbered
	if r.SRIOV {
		names = slots.PCI
	}
	set, left := slots.New(hcas, r.Slots, names)
	p.sayLeft(r.Name, left)
	p.sayMoves(r.Name, s.offer.set, set)
	s.set(offer{set, cm, r.Topology, r.SRIOV})
	for _, h := range set.HCAs() {
		p.logChange("HCA "+h.Name, h.Healthy())
	}
	// before our own socket is looked at: a kubelet that starts empties the folder first
	kubelet := identify(filepath.Join(p.c.KubeletDir, kubeletAt))
	err := s.listen()
	if err == nil {
		err = s.register(ctx, p.c.KubeletDir, kubelet, p.now())
	}
	p.logChange("resource "+r.Name, err)
	rv := resourceView{name: r.Name, registered: s.registered()}
	for _, slot := range set.Slots() {
		rv.slots++
		if slot.Healthy {
			rv.healthy++
		}
	}
	v.resources = append(v.resources, rv)
	for _, h := range set.HCAs() {
		v.given[h.Name] = r.Name
	}
}

// sayMoves logs HCAs that come to a resource and those that leave it.
func (p *plugin) sayMoves(resource string, before, after *slots.Set) {
	had := map[string]bool{}
	if before != nil {
		for _, h := range before.HCAs() {
			had[h.Name] = true
		}
	}
	for _, h := range after.HCAs() {
		if !had[h.Name] {
			p.c.Log.Info("HCA is advertised", "device", h.Name, "pci", h.PCI, "model", h.Abilities.Model, "resource", resource)
		}
		delete(had, h.Name)
	}
	for name := range had {
		p.logChange("HCA "+name, nil)
		p.c.Log.Info("HCA is not advertised any more", "device", name, "resource", resource)
	}
}

func (p *plugin) sayLeft(resource string, left []hca.HCA) {
	var err error
	if len(left) > 0 {
		err = fmt.Errorf("%d HCAs are left out, the first is %s: a resource has at most %d slots", len(left), left[0].Name, slots.Max)
	}
	p.logChange("slots of "+resource, err)
}

// label sets the node's labels when they change, and from time to time.
func (p *plugin) label(ctx context.Context, hcas []hca.HCA) {
	l, now := &p.labels, p.now()
	want := labelsOf(hcas)
	if p.c.Labeler == nil || now.Before(l.next) && (l.err != nil || reflect.DeepEqual(l.set, want)) {
		return
	}
	l.err = p.c.Labeler.Label(ctx, want)
	p.logChange("labels", l.err)
	if l.err != nil {
		l.next = now.Add(labelRetry)
		return
	}
	l.set, l.next = want, now.Add(labelAgain)
}

// stop ends all servers. The kubelet then has the resources with nothing to allocate, until the
// next plugin registers; containers keep what they have.
func (p *plugin) stop() {
	for name, s := range p.servers {
		p.logChange("stop "+name, s.stop())
	}
	p.c.Log.Info("stopped")
}
