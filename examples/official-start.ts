import { onNode } from './official-entrances.ts'
import { createBuilder } from './official-server.ts'

onNode(createBuilder()).listen(3000, '127.0.0.1', () => console.log('Serving http://127.0.0.1:3000/mcp'))
