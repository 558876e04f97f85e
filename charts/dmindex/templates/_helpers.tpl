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

{{- /* The namespaces with indexes, as a list; empty = all. */}}
{{- define "dmindex.namespaces" -}}
{{ .Values.watchNamespaces | toYaml }}
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
