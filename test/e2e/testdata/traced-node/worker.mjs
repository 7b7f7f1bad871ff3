// A worker whose spans go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names.
import { trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'

const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter())] })
provider.register()

const { method, run } = await import(process.env.NODE_SDK)

method('work', async () => {
  await new Promise(setImmediate)
  trace.getTracer('program').startSpan('inner').end()
  return 'done'
})

method('fail', () => {
  throw new RangeError('not today')
})

run()
