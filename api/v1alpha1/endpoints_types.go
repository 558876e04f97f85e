package v1alpha1

import corev1 "k8s.io/api/core/v1"

// RESPTLSMode is whether programs speak RESP under TLS.
// +kubebuilder:validation:Enum=Off;Optional;Required
type RESPTLSMode string

// The modes.
const (
	RESPTLSOff      RESPTLSMode = "Off"      // in the clear
	RESPTLSOptional RESPTLSMode = "Optional" // either, at the same port
	RESPTLSRequired RESPTLSMode = "Required" // under TLS only
)

// RESPTLSSpec says how RESP is encrypted.
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || (has(self.mode) && self.mode != 'Off')",message="resp.tls.secretName is for mode Required or Optional: write one of them, or leave secretName out"
type RESPTLSSpec struct {
	// Mode is whether programs speak RESP under TLS. Optional is for the time in which they change
	// over.
	// +optional
	// +default="Off"
	Mode RESPTLSMode `json:"mode,omitempty"`

	// SecretName names a Secret of type kubernetes.io/tls with the certificate that is shown to
	// RESP clients. Servers follow its changes. Default: a certificate of the index's authority,
	// whose ca.crt is in the Secret <index>-conn.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
}

// RESPSpec is how Redis clients reach the index.
type RESPSpec struct {
	// TLS encrypts RESP. When it is changed, compute servers are replaced one after the other.
	// +optional
	// +default={}
	TLS RESPTLSSpec `json:"tls,omitzero"`
}

// ServiceSpec describes the Service of the index.
type ServiceSpec struct {
	// Type of the Service.
	// +optional
	// +default="ClusterIP"
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// Annotations of the Service, as a cloud's load balancer reads them.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('dmindex.io/'))",message="annotations of dmindex.io/ are the operator's: write another prefix"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// EndpointsSpec is how programs reach the index.
type EndpointsSpec struct {
	// Service describes the Service that has the index's name.
	// +optional
	// +default={}
	Service ServiceSpec `json:"service,omitzero"`

	// ExternalNames are further names and addresses by which programs reach the index. The
	// certificates of compute servers name them, and the Secret <index>-conn has them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') || isIP(self)",message="an external name is a DNS name in lower case, such as index.example.com, or an IP address, without a port"
	ExternalNames []string `json:"externalNames,omitempty"`

	// RESP is how Redis clients reach the index.
	// +optional
	// +default={}
	RESP RESPSpec `json:"resp,omitzero"`
}

// LogSpec is what the servers of the index log.
type LogSpec struct {
	// Level is the least level that is logged. Default: as the operator's flag --server-log-level
	// says.
	// +optional
	// +kubebuilder:validation:Enum=debug;info;warn;error
	Level string `json:"level,omitempty"`

	// Format of the log. Default: as the operator's flag --server-log-format says.
	// +optional
	// +kubebuilder:validation:Enum=text;json
	Format string `json:"format,omitempty"`
}
