{{- define "dmindex.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dmindex.selector" -}}
app.kubernetes.io/name: dmindex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "dmindex.labels" -}}
{{ include "dmindex.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dmindex.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dmindex.devicePlugin.selector" -}}
app.kubernetes.io/name: dmindex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: device-plugin
{{- end }}

{{- define "dmindex.devicePlugin.labels" -}}
{{ include "dmindex.devicePlugin.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The namespaces with indexes, as a list; empty = all. An upgrade does not take rights from an operator that watched all: its indexes would be left alone. */}}
{{- define "dmindex.namespaces" -}}
{{- if .Values.watchAllNamespaces }}
{{- if .Values.watchNamespaces }}{{ fail "watchAllNamespaces and watchNamespaces are both set: take one of them away" }}{{ end }}
{{- list | toYaml }}
{{- else if .Values.watchNamespaces }}
{{- .Values.watchNamespaces | toYaml }}
{{- else }}
{{- $everywhere := lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" (include "dmindex.fullname" .) }}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-namespace" .Release.Namespace ($everywhere | default dict) }}
{{- if and $everywhere (eq $of .Release.Namespace) }}
{{- fail "this release watches all namespaces, and would watch its own only: set watchAllNamespaces=true to leave that as it is, or name the namespaces with indexes in watchNamespaces" }}
{{- end }}
{{- list .Release.Namespace | toYaml }}
{{- end }}
{{- end }}

{{- /* What gives the operator its rights in namespaces with indexes. */}}
{{- define "dmindex.bindingKind" -}}
{{- if .Values.watchAllNamespaces }}ClusterRoleBinding{{ else }}RoleBinding{{ end }}
{{- end }}

{{- /* Of bindings of policies: the namespaces with indexes. */}}
{{- define "dmindex.watched" -}}
{{- with .Values.watchNamespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* Stops an install over what another release has: Helm would stop as well, without saying what to do. */}}
{{- define "dmindex.alone" -}}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (include "dmindex.fullname" .) | default dict }}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-namespace" .Release.Namespace $role }}
{{- if ne $of .Release.Namespace }}
{{- fail (printf "release %s of namespace %s has a ClusterRole %s: give this release another name, or upgrade that one, with the namespaces of both in watchNamespaces" (dig "metadata" "annotations" "meta.helm.sh/release-name" "?" $role) $of (include "dmindex.fullname" .)) }}
{{- end }}
{{- if .Values.crds.enabled }}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "dmindexes.dmindex.io" | default dict }}
{{- $name := dig "metadata" "annotations" "meta.helm.sh/release-name" .Release.Name $crd }}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-namespace" .Release.Namespace $crd }}
{{- if or (ne $of .Release.Namespace) (ne $name .Release.Name) }}
{{- fail (printf "the CRDs are those of release %s of namespace %s: set crds.enabled=false here, and name in watchNamespaces none that the other release watches: one operator would undo what the other one does. If that release is gone, take them over: docs/kubernetes/install.md, Two releases" $name $of) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty: the cluster says as whom pods run. */}}
{{- define "dmindex.clusterUser" -}}
{{- if or (eq .Values.userIDs "cluster") (and (eq .Values.userIDs "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}yes{{ end }}
{{- end }}
