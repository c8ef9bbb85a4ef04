{{- define "counterpoint.fullname" -}}
{{- if .Values.fullname -}}
{{- .Values.fullname | trunc 40 | trimSuffix "-" -}}
{{- else if contains "counterpoint" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-counterpoint" (.Release.Name | trunc 27 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- /* What the policy and the settings say: connections, ports, consumers, settings, secrets. */ -}}
{{- define "counterpoint.house" -}}
{{- .Files.Get "files/house.yaml" -}}
{{- end -}}

{{- /* The services that are Deployments: all but memory, which has volumes. */ -}}
{{- define "counterpoint.deployments" -}}
{{- keys (omit (include "counterpoint.house" . | fromYaml).ports "memory") | sortAlpha | toYaml -}}
{{- end -}}

{{- /* The labels that select the pods of a component: (list $ "router"). */ -}}
{{- define "counterpoint.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: counterpoint
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "counterpoint.labels" -}}
{{- $root := index . 0 -}}
{{ include "counterpoint.selector" . }}
app.kubernetes.io/part-of: counterpoint
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The metadata of an object of a component: (list $ "router"). Its name is FULLNAME-COMPONENT. */ -}}
{{- define "counterpoint.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "counterpoint.fullname" $root }}-{{ index . 1 }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "counterpoint.labels" . | nindent 2 }}
{{- end -}}

{{- define "counterpoint.secret" -}}
{{- $root := index . 0 -}}
{{- index $root.Values.secrets.names (index . 1) | default (printf "%s-%s" (include "counterpoint.fullname" $root) (index . 1)) -}}
{{- end -}}

{{- define "counterpoint.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- $version := printf ":%s" ($image.tag | default $root.Chart.AppVersion) -}}
{{- with index $image.digests (index . 1) }}{{ $version = printf "@%s" . }}{{ end -}}
{{- printf "%s-%s%s" $image.repository (index . 1) $version -}}
{{- end -}}

{{- define "counterpoint.port" -}}
{{- $root := index . 0 -}}
{{- index (include "counterpoint.house" $root | fromYaml).ports (index . 1) (index . 2) | int -}}
{{- end -}}

{{- /* The host of a URL, without its port. */ -}}
{{- define "counterpoint.host" -}}
{{- (urlParse .).hostname -}}
{{- end -}}

{{- /* One number of replicas of a service, the lowest that it may have: (list $ "router"). */ -}}
{{- define "counterpoint.replicas" -}}
{{- $root := index . 0 -}}
{{- $own := index $root.Values (index . 1) -}}
{{- if ((index $own "autoscaling" | default dict).enabled) -}}
{{- $own.autoscaling.minReplicas | int -}}
{{- else -}}
{{- $own.replicas | int -}}
{{- end -}}
{{- end -}}
