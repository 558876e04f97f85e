//go:build e2e

package e2e

import (
	"fmt"
	"strings"
)

// indexManifest is a small DMIndex named x: two memory servers and two compute servers, string
// keys.
const indexManifest = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: x}
spec:
  design: DEX
  durability: Memory
  key: {type: Bytes, maxLength: 64}
  value: {maxLength: 128}
  memoryPools:
  - {name: memory, template: {servers: 2, memory: 128Mi}}
  computePools:
  - {name: compute, template: {replicas: 2, minReplicas: 1, maxReplicas: 4}}
`

// newIndex makes the index of a manifest, waits until it is settled, starts the pod "tools" with
// its Secret, and waits until that one reaches the index: its node has to hear of the Service.
func (s *space) newIndex(manifest, memory, compute string) {
	s.Helper()
	s.apply(manifest)
	s.settled(memory, compute)
	s.withTools(toolsPod("tools", "sleep", "infinity"))
}

func (s *space) withTools(pod string) {
	s.Helper()
	s.apply(pod)
	s.kubectl("wait", "pod/tools", "--for=condition=Ready", "--timeout=80s")
	s.eventually(short, "the Service reaches the index", func() (bool, string) {
		out, err := s.tools("sh", "-c", "REDISCLI_AUTH=$(cat /conn/password) redis-cli -h x ping")
		return err == nil && out == "PONG", out
	})
}

// indexLine is the state of the index x in one line.
func (s *space) indexLine() string {
	return s.jsonpath("dmi/x", `memory {.status.memoryReady}, compute {.status.computeReady}, generation {.metadata.generation} `+
		`{.status.observedGeneration},{range .status.conditions[*]} {.type}={.status} ({.reason}: {.message}){end}`)
}

// settled waits until the index has that many servers ("2/2"), is available, and the operator has
// nothing left to do.
func (s *space) settled(memory, compute string) {
	s.Helper()
	s.eventually(long, fmt.Sprintf("index is settled with memory %s and compute %s", memory, compute), func() (bool, string) {
		line := s.indexLine()
		var generation, observed string
		if _, rest, ok := strings.Cut(line, ", generation "); ok {
			fmt.Sscanf(strings.Replace(rest, ",", " ", 1), "%s %s", &generation, &observed)
		}
		return strings.HasPrefix(line, "memory "+memory+", compute "+compute+",") && generation == observed && generation != "" &&
			strings.Contains(line, "Available=True") && strings.Contains(line, "Progressing=False"), line
	})
}

// condition waits until a condition of the index has a status, and returns its message.
func (s *space) condition(kind, status string) string {
	s.Helper()
	path := "{.status.conditions[?(@.type==\"" + kind + "\")]."
	s.eventually(long, kind+" is "+status, func() (bool, string) {
		return s.jsonpath("dmi/x", path+"status}") == status, s.indexLine()
	})
	return s.jsonpath("dmi/x", path+"message}")
}

// owners are the pods that own ranges.
func (s *space) owners() map[string]bool {
	all := map[string]bool{}
	for _, o := range strings.Fields(s.jsonpath("dmi/x", "{.status.map.ranges[*].owner}")) {
		all[o] = true
	}
	return all
}

// computePods are the pods of compute servers that the index knows.
func (s *space) computePods() []string {
	return strings.Fields(s.jsonpath("dmi/x", "{.status.computeServers[*].pod}"))
}

func (s *space) memoryPods() []string {
	return strings.Fields(s.jsonpath("dmi/x", "{.status.memoryServers[*].pod}"))
}

// toolsPod is a pod that runs a command of the tools' image, with the index's Secret in /conn.
func toolsPod(name string, command ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: tools
    image: %s
    command: [%s]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts:
    - {name: conn, mountPath: /conn, readOnly: true}
  volumes:
  - name: conn
    secret: {secretName: x-conn}
`, name, target.toolsImage, `"`+strings.Join(command, `", "`)+`"`)
}

// tools runs a command in the pod "tools".
func (s *space) tools(command ...string) (string, error) {
	return s.try(append([]string{"exec", "tools", "--"}, command...)...)
}

// dmindex runs a subcommand of dmindex in the pod "tools"; it must succeed.
func (s *space) dmindex(subcommand string, args ...string) string {
	s.Helper()
	out, err := s.tryDmindex(subcommand, args...)
	if err != nil {
		s.Fatalf("dmindex %s %s: %v\n%s", subcommand, strings.Join(args, " "), err, out)
	}
	return out
}

func (s *space) tryDmindex(subcommand string, args ...string) (string, error) {
	return s.tools(append([]string{"dmindex", subcommand, "--secret", "/conn"}, args...)...)
}

// redis runs redis-cli in the pod "tools" through the index's Service, with its password.
func (s *space) redis(args ...string) string {
	s.Helper()
	return s.redisAt("x", args...)
}

// redisAt is redis for a certain host.
func (s *space) redisAt(host string, args ...string) string {
	s.Helper()
	script := []string{"sh", "-c", `h=$1; shift; REDISCLI_AUTH=$(cat /conn/password) exec redis-cli -h "$h" "$@"`, "redis", host}
	out, err := s.tools(append(script, args...)...)
	if err != nil {
		s.Fatalf("redis-cli %q: %v\n%s", args, err, out)
	}
	return out
}

// is compares an answer.
func (s *space) is(got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("got %q, want %q", got, want)
	}
}

// contains looks for a part of an answer.
func (s *space) contains(got, want string) {
	s.Helper()
	if !strings.Contains(got, want) {
		s.Errorf("got %q, want something with %q", got, want)
	}
}

// fails is for commands that must not succeed, and whose words must contain want.
func (s *space) fails(out string, err error, want string) {
	s.Helper()
	if err == nil {
		s.Errorf("succeeded with %q, want an error with %q", out, want)
	} else if !strings.Contains(out, want) {
		s.Errorf("failed with %q (%v), want an error with %q", out, err, want)
	}
}
