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

{{- /* Whether keys come from files. */}}
{{- define "penstock.hasKeyFiles" -}}
{{- if or .Values.keys.existing .Values.keys.values -}}yes{{- end -}}
{{- end -}}

{{- /* Refuses what would install and never start. */}}
{{- define "penstock.check" -}}
{{- $variables := or .Values.envFromSecret .Values.environment -}}
{{- if and (regexMatch "(?m)^\\s*\\w+_env\\s*=" .Values.config) (not $variables) -}}
{{- fail "config takes secrets from variables: name the Secret that has them, with --set envFromSecret=NAME" -}}
{{- end -}}
{{- if and (contains "/etc/penstock/keys/" .Values.config) (not (include "penstock.hasKeyFiles" .)) -}}
{{- fail "config takes keys from files: name the Secret that has them, with --set keys.existing=NAME" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.replicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "replicas are the fewest with autoscaling: raise autoscaling.maxReplicas to them, or more" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.keys" -}}
{{- if .Values.keys.existing -}}
{{- .Values.keys.existing -}}
{{- else -}}
{{- include "penstock.name" . -}}-keys
{{- end -}}
{{- end -}}
