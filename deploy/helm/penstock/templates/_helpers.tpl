{{- define "penstock.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "penstock.name" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "penstock.keys" -}}
{{- if .Values.keys.existing -}}
{{- .Values.keys.existing -}}
{{- else -}}
{{- include "penstock.name" . -}}-keys
{{- end -}}
{{- end -}}
