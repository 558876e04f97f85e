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

{{- /* Which release an object of an operator is of, for people; empty if it is this one, or none of an operator's. */}}
{{- define "dmindex.otherRelease" -}}
{{- $meta := .object.metadata }}
{{- $name := dig "annotations" "meta.helm.sh/release-name" "" $meta }}
{{- $of := dig "annotations" "meta.helm.sh/release-namespace" "" $meta }}
{{- $labels := dig "labels" dict $meta }}
{{- if and (eq (get $labels "app.kubernetes.io/name") "dmindex") (eq (get $labels "app.kubernetes.io/component") "operator") (not (and (eq $name .root.Release.Name) (eq $of .root.Release.Namespace))) }}
{{- if $name }}release {{ $name }} of namespace {{ $of }}{{ else }}an operator without Helm ({{ .object.kind }} {{ $meta.name }}){{ end }}
{{- end }}
{{- end }}

{{- /* Stops an install beside a release that has the same namespaces: two operators would undo what the other one does. Where the chart is
rendered without a cluster the second operator finds out itself, by the Lease of the namespace. */}}
{{- define "dmindex.unwatched" -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "" | default dict).items }}
{{- with include "dmindex.otherRelease" (dict "object" . "root" $) }}
{{- fail (printf "%s has its operator in namespace %s, and of two operators in one namespace only one works: install this release in a namespace of its own" . $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- $mine := include "dmindex.namespaces" . | fromYamlArray }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "" | default dict).items }}
{{- if not (hasSuffix "-nodes" .roleRef.name) }}
{{- with include "dmindex.otherRelease" (dict "object" . "root" $) }}
{{- fail (printf "%s watches all namespaces: name in its watchNamespaces those that it shall have, and here others (docs/kubernetes/install.md, Two releases)" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $namespace := $mine | default (list "") }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" $namespace "" | default dict).items }}
{{- if eq .roleRef.kind "ClusterRole" }}
{{- $watched := .metadata.namespace }}
{{- with include "dmindex.otherRelease" (dict "object" . "root" $) }}
{{- fail (printf "%s watches namespace %s: take it out of the watchNamespaces of one of the two releases (docs/kubernetes/install.md, Two releases)" . $watched) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty: the cluster says as whom pods run. */}}
{{- define "dmindex.clusterUser" -}}
{{- if or (eq .Values.userIDs "cluster") (and (eq .Values.userIDs "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}yes{{ end }}
{{- end }}
