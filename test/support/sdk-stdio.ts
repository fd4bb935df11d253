/** The scenarios on an official server over stdio, as a process of its own. */
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { scenarios } from '../scenarios/scenario.ts'
import { serveScenarios } from './sdk-server.ts'

serveStdio(serveScenarios(scenarios).factory)
