package v1alpha1

// LogLevel is the least level of a log.
// +kubebuilder:validation:Enum=debug;info;warn;error
type LogLevel string

// ComputeSettings are settings of compute servers. Where a field says "live", servers that run take
// a change within seconds: no pod is made anew, and no connection ends. What a server does not
// understand, as one of an earlier version may, leaves the former value in force there, and an
// event SettingsRefused says so.
type ComputeSettings struct {
	// MaxConnections is how many connections of programs each server takes: over RESP, and as many
	// of the SDK; 1 to 10000, default 10000. Live: connections that are open stay. It is Redis'
	// maxclients.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10000",message="settings.maxConnections must be within 1 and 10000, as pods have memory for as many: write that, and add compute servers for more"
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// IdleTimeoutSeconds is after how many seconds a silent RESP connection is closed; 10 to
	// 604800, default 3600. Live. It is Redis' timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 10 && self <= 604800",message="settings.idleTimeoutSeconds must be within 10 and 604800 (a week): write after how many seconds a silent connection is closed"
	IdleTimeoutSeconds int32 `json:"idleTimeoutSeconds,omitempty"`

	// SlowLogMicroseconds is from how many microseconds on SLOWLOG has a pipeline; 0 (every one) to
	// 60000000, default 10000. Live. It is Redis' slowlog-log-slower-than.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 60000000",message="settings.slowLogMicroseconds must be within 0 and 60000000 (a minute): write from how many microseconds on SLOWLOG has a pipeline"
	SlowLogMicroseconds *int32 `json:"slowLogMicroseconds,omitempty"`

	// LogLevel is the least level of the servers' log: debug, info, warn or error. Default: what
	// the pods were made with, by spec.log of the index or the operator's --server-log-level. Live.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// MaxSessions is how many requests of each server use the index at the same time; 1 to 256,
	// default 64. Others wait. Each takes a connection to each memory server, which has 1024. A
	// change replaces the pods, one after the other.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 256",message="settings.maxSessions must be within 1 and 256: write how many requests of a server use the index at the same time, and add compute servers for more"
	MaxSessions int32 `json:"maxSessions,omitempty"`
}

// MemorySettings are settings of memory servers.
type MemorySettings struct {
	// LogLevel is the least level of the servers' log: debug, info, warn or error. Default: what
	// the pods were made with, by spec.log of their index or the operator's --server-log-level.
	// Live: servers that run take a change within seconds.
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`
}
